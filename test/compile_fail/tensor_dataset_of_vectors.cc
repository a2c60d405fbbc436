// expect: tensor_dataset takes two tensors, features and targets: tensor_view<const float, shape\{dynamic, 20\}>\(data, shape\{n, 20\}\)
#include <ikebana/io/data_loader.hpp>
#include <vector>

namespace ike = ikebana;
using namespace ike::literals;

std::vector<float> x(100 * 20);
std::vector<std::int64_t> labels(100);

#ifdef MENDED
auto data = ike::tensor_dataset(
    ike::tensor_view<const float, ike::shape{ike::dynamic, 20}>(x.data(), ike::shape{100, 20}),
    ike::tensor_view<const std::int64_t, ike::shape{100}>(labels.data()));
#else
auto data = ike::tensor_dataset(x, labels);
#endif
