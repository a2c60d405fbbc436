// expect: update_bn takes batches and an initialized model: update_bn
#include <ikebana/compose/sequential.hpp>
#include <ikebana/io/data_loader.hpp>
#include <ikebana/io/dataset.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/update_bn.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc"_m = ike::linear<3, 2>{});

void run() {
  auto model = ike::initialize<float, ike::shape{4, 3}>(net, ike::seed{1});
  const auto data = ike::tensor_dataset(ike::zeros<float, ike::shape{8, 3}>(),
                                        ike::zeros<float, ike::shape{8, 2}>());
  ike::data_loader loader{data, {.batch = 4}};
#ifdef MENDED
  ike::update_bn(loader, model);
#else
  ike::update_bn(model, loader);
#endif
}
