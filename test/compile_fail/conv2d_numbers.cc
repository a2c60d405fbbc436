// The compiler's own words, for a parameter of its name.
// page: 27 A kernel as a number
// expect-gcc: .template<long int In, long int Out, class ... NamedOptions> using conv2d
// errors-gcc: 2
// expect-clang: template argument for template type parameter must be a type
// note: expected a type, got .3.|class\.\.\. NamedOptions
#include <ikebana/nn/conv.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::conv2d<1, 8, ike::kernel<3>> net;
#else
inline constexpr ike::conv2d<1, 8, 3> net;
#endif
