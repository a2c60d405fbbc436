// expect: free_storage needs the sole owner of the memory: a tensor that is not const, not a view of one
#include <ikebana/replicate/utils/storage.hpp>

namespace ike = ikebana;

void use(ike::tensor<float, ike::shape{2, 3}>& t) {
#ifdef MENDED
  ike::free_storage(t);
#else
  auto view = t.view();
  ike::free_storage(view);
#endif
}
