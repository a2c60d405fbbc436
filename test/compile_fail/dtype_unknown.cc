// expect: no dtype stands for this type
#include <ikebana/core/dtype.hpp>

#ifdef MENDED
inline constexpr auto type = ikebana::dtype_of<float>;
#else
inline constexpr auto type = ikebana::dtype_of<char>;
#endif
