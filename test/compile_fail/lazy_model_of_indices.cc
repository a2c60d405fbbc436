// expect: none of the inputs is of float or double, so the element type must be chosen: element_type<T>
#include <ikebana/core/tensor.hpp>
#include <ikebana/model/lazy_model.hpp>
#include <ikebana/nn/embedding.hpp>

namespace ike = ikebana;

#ifdef MENDED
ike::lazy_model holder{ike::embedding<7, 4>{}, ike::seed{1}, ike::element_type<float>{}};
#else
ike::lazy_model holder{ike::embedding<7, 4>{}, ike::seed{1}};
#endif
auto x = ike::tensor_of<std::int64_t, ike::shape{2}>({1, 2});
void call() { holder(x); }
