// page: 35 No exceptions
// expect: Ikebana trains with exceptions: compile without -fno-exceptions, or include only deploy.hpp
// flags: -fno-exceptions
// errors-gcc: 2
// errors-clang: 2
#ifdef MENDED
#include <ikebana/deploy.hpp>
#else
#include <ikebana/ikebana.hpp>
namespace ike = ikebana;
ike::tensor<float, ike::shape{2, 3}> x;
#endif
