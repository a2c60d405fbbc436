// expect: no dtype stands for this type
#include <ikebana/core/dtype.hpp>

#ifdef MENDED
constexpr auto type = ikebana::dtype_of<float>;
#else
constexpr auto type = ikebana::dtype_of<char>;
#endif
