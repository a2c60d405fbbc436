// page: 35 No exceptions
// expect: Ikebana reports errors as exceptions: compile without -fno-exceptions
// flags: -fno-exceptions
// errors-gcc: 2
// errors-clang: 2
#ifdef MENDED
#else
#include <ikebana/core/tensor.hpp>
namespace ike = ikebana;
ike::tensor<float, ike::shape{2, 3}> x;
#endif
