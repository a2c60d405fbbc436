// expect: data_loader takes a dataset and its options in braces, data_loader\{data, \{.batch = 32, .shuffle = seed\{1\}\}\}, which are batch, shuffle, shard, drop_last, weights, strata, workers, prefetch, padding
#include <ikebana/io/data_loader.hpp>

namespace ike = ikebana;
using namespace ike::literals;

auto data = ike::tensor_dataset(ike::zeros<float, ike::shape{100, 20}>(),
                                ike::zeros<std::int64_t, ike::shape{100}>());

#ifdef MENDED
ike::data_loader batches{data, {.batch = 32, .shuffle = ike::seed{1}}};
#else
ike::data_loader batches{data, {.batch = 32, .shuffle = true}};
#endif
