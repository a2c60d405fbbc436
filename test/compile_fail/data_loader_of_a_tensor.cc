// expect: data_loader takes a dataset: tensor_dataset\(features, targets\), or a class of one's own with size\(\) and sample\(i\), which returns a std::tuple of tensors and numbers
#include <ikebana/io/data_loader.hpp>

namespace ike = ikebana;
using namespace ike::literals;

auto data = ike::tensor_dataset(ike::zeros<float, ike::shape{100, 20}>(),
                                ike::zeros<std::int64_t, ike::shape{100}>());

#ifdef MENDED
ike::data_loader batches{data, {.batch = 32, .shuffle = ike::seed{1}}};
#else
ike::data_loader batches{data.features(), {.batch = 32}};
#endif
