#include "benchmarks/network_peers.hpp"

#ifdef IKEBANA_HAS_MLPACK

#define MLPACK_ENABLE_ANN_SERIALIZATION
#include <mlpack.hpp>

namespace bench {
namespace {

using network = mlpack::FFN<mlpack::NegativeLogLikelihoodType<arma::fmat>,
                            mlpack::GlorotInitialization, arma::fmat>;
template <template <class> class Layer>
using of_floats = Layer<arma::fmat>;

void add_dense(network& model, std::initializer_list<std::size_t> widths) {
  std::size_t left = widths.size();
  for (const std::size_t width : widths) {
    model.Add<mlpack::LinearType<arma::fmat>>(width);
    if (--left > 0) model.Add<mlpack::ReLUType<arma::fmat>>();
  }
  model.Add<mlpack::LogSoftMaxType<arma::fmat>>();
}

timed prepare(const network_problem& p) {
  if (p.network != net::mlp && p.network != net::lenet) return {};
  auto model = std::make_shared<network>();
  if (p.network == net::lenet) {
    model->InputDimensions() = {28, 28, 1};
    model->Add<
        mlpack::ConvolutionType<mlpack::NaiveConvolution<mlpack::ValidConvolution>,
                                mlpack::NaiveConvolution<mlpack::FullConvolution>,
                                mlpack::NaiveConvolution<mlpack::ValidConvolution>, arma::fmat>>(
        6, 5, 5, 1, 1, 2, 2);
    model->Add<mlpack::ReLUType<arma::fmat>>();
    model->Add<mlpack::MaxPoolingType<arma::fmat>>(2, 2, 2, 2);
    model->Add<
        mlpack::ConvolutionType<mlpack::NaiveConvolution<mlpack::ValidConvolution>,
                                mlpack::NaiveConvolution<mlpack::FullConvolution>,
                                mlpack::NaiveConvolution<mlpack::ValidConvolution>, arma::fmat>>(
        16, 5, 5);
    model->Add<mlpack::ReLUType<arma::fmat>>();
    model->Add<mlpack::MaxPoolingType<arma::fmat>>(2, 2, 2, 2);
    add_dense(*model, {120, 84, 10});
  } else {
    add_dense(*model, {128, 64, 10});
  }
  const auto batch = static_cast<std::size_t>(p.batch);
  auto x = std::make_shared<arma::fmat>(p.x, 784, batch);
  auto labels = std::make_shared<arma::fmat>(1, batch);
  for (std::size_t i = 0; i < batch; ++i) (*labels)(0, i) = static_cast<float>(i % 10);
  auto y = std::make_shared<arma::fmat>();
  model->Predict(*x, *y, batch);
  if (p.what == use::inference)
    return repeated([=] { model->Predict(*x, *y, static_cast<std::size_t>(p.batch)); });
  model->ResetData(*x, *labels);
  auto gradient = std::make_shared<arma::fmat>();
  if (p.what == use::adam) {
    auto rule = std::make_shared<ens::AdamUpdate>();
    auto policy = std::make_shared<ens::AdamUpdate::Policy<arma::fmat, arma::fmat>>(
        *rule, model->Parameters().n_rows, model->Parameters().n_cols);
    return repeated([=] {
      model->EvaluateWithGradient(model->Parameters(), 0, *gradient, batch);
      policy->Update(model->Parameters(), 1e-3, *gradient);
    });
  }
  return repeated([=] {
    model->EvaluateWithGradient(model->Parameters(), 0, *gradient, batch);
    model->Parameters() -= 0.01F * *gradient;
  });
}

}  // namespace

network_peer mlpack_networks() {
  return {"mlpack",
          std::to_string(MLPACK_VERSION_MAJOR) + "." + std::to_string(MLPACK_VERSION_MINOR) + "." +
              std::to_string(MLPACK_VERSION_PATCH),
          "IKEBANA_MLPACK_INCLUDE",
          {prepare}};
}

}  // namespace bench

#else

bench::network_peer bench::mlpack_networks() {
  return absent<network_peer>("mlpack", "IKEBANA_MLPACK_INCLUDE");
}

#endif
