// page: 34 An older standard
// expect: Ikebana needs C\+\+20: compile with -std=c\+\+20 or later
// flags: -std=c++17
// errors-gcc: 2
// errors-clang: 2
#ifdef MENDED
#else
#include <ikebana/ikebana.hpp>
namespace ike = ikebana;
ike::tensor<float, ike::shape{2, 3}> x;
#endif
