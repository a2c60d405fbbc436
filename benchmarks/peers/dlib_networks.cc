#include "benchmarks/network_peers.hpp"

#ifdef IKEBANA_HAS_DLIB

#include <dlib/dnn.h>

#include <algorithm>

namespace bench {
namespace {

using mlp = dlib::loss_multiclass_log<dlib::fc<
    10, dlib::relu<dlib::fc<64, dlib::relu<dlib::fc<128, dlib::input<dlib::matrix<float>>>>>>>>;

template <long N, long Kernel, int Padding, class Below>
using convolution = dlib::add_layer<dlib::con_<N, Kernel, Kernel, 1, 1, Padding, Padding>, Below>;
using lenet = dlib::loss_multiclass_log<dlib::fc<
    10,
    dlib::relu<dlib::fc<
        84,
        dlib::relu<dlib::fc<
            120, dlib::max_pool<
                     2, 2, 2, 2,
                     dlib::relu<convolution<
                         16, 5, 0,
                         dlib::max_pool<2, 2, 2, 2,
                                        dlib::relu<convolution<
                                            6, 5, 2, dlib::input<dlib::matrix<float>>>>>>>>>>>>>>;

/// Tensors are created once; forward, loss, backward and update follow dlib's trainer.
template <class Net>
timed run(const network_problem& p, dim_t rows, dim_t columns) {
  auto model = std::make_shared<Net>();
  std::vector<dlib::matrix<float>> images;
  auto labels = std::make_shared<std::vector<unsigned long>>();
  for (dim_t i = 0; i < p.batch; ++i) {
    dlib::matrix<float> image(rows, columns);
    std::copy_n(p.x + i * rows * columns, rows * columns, image.begin());
    images.push_back(std::move(image));
    labels->push_back(static_cast<unsigned long>(i % 10));
  }
  auto x = std::make_shared<dlib::resizable_tensor>();
  model->to_tensor(images.begin(), images.end(), *x);
  if (p.what == use::inference) return repeated([=] { model->subnet().forward(*x).host(); });
  const auto step = [=](auto solvers) {
    return repeated([=]() mutable {
      model->compute_parameter_gradients(*x, labels->begin());
      model->update_parameters(solvers, 0.01);
    });
  };
  if (p.what == use::adam)
    return step(std::vector<dlib::adam>(Net::num_computational_layers, dlib::adam(0, 0.9, 0.999)));
  return step(std::vector<dlib::sgd>(Net::num_computational_layers, dlib::sgd(0, 0)));
}

#define BENCH_TEXT(x) #x
#define BENCH_TEXT_OF(x) BENCH_TEXT(x)

/// dlib has its version only in the name of a symbol that programs link to:
/// .._EXPECTED_VERSION_19_24_0.
std::string version() {
  std::string text = BENCH_TEXT_OF(DLIB_CHECK_FOR_VERSION_MISMATCH);
  const auto begin = text.rfind("VERSION_");
  if (begin == std::string::npos) return "of unknown version";
  text = text.substr(begin + 8);
  std::replace(text.begin(), text.end(), '_', '.');
  return text;
}

timed prepare(const network_problem& p) {
  if (p.network == net::mlp) return run<mlp>(p, 784, 1);
  if (p.network == net::lenet) return run<lenet>(p, 28, 28);
  return {};
}

}  // namespace

network_peer dlib_networks() { return {"dlib", version(), "libdlib-dev", {prepare}}; }

}  // namespace bench

#else

bench::network_peer bench::dlib_networks() { return absent<network_peer>("dlib", "libdlib-dev"); }

#endif
