// expect: padding_idx is within num_embeddings
// errors-clang: 2
#include <ikebana/nn/embedding.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::embedding<10, 4, ike::padding_idx<-10>> net;
#else
inline constexpr ike::embedding<10, 4, ike::padding_idx<10>> net;
#endif
