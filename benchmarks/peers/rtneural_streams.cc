// Built twice, as eigen_gemm.cc is.
#include "benchmarks/stream_peers.hpp"

#ifdef IKEBANA_HAS_RTNEURAL

#define RTNEURAL_DEFAULT_ALIGNMENT 32
#define RTNEURAL_USE_EIGEN 1
#include <RTNeural/RTNeural.h>

namespace bench {
namespace {

using rows = std::vector<std::vector<float>>;

rows random_rows(std::size_t count, std::size_t columns) {
  const auto values = random_array<float>(static_cast<dim_t>(count * columns), 1, -0.3F, 0.3F);
  rows all(count, std::vector<float>(columns));
  dim_t next = 0;
  for (auto& row : all)
    for (float& value : row) value = values[next++];
  return all;
}

/// Zero weights would make every value the same.
template <int In, int Out>
void draw(RTNeural::DenseT<float, In, Out>& layer) {
  layer.setWeights(random_rows(Out, In));
  std::vector<float> bias(Out, 0.1F);
  layer.setBias(bias.data());
}
template <int In, int Out, int Kernel, int Dilation>
void draw(RTNeural::Conv1DT<float, In, Out, Kernel, Dilation>& layer) {
  std::vector<rows> weights(Out, random_rows(In, Kernel));
  layer.setWeights(weights);
  layer.setBias(std::vector<float>(Out, 0.1F));
}
template <int In, int Out>
void draw(RTNeural::GRULayerT<float, In, Out>& layer) {
  layer.setWVals(random_rows(In, 3 * Out));
  layer.setUVals(random_rows(Out, 3 * Out));
  layer.setBVals(random_rows(2, 3 * Out));
}
template <int In, int Out>
void draw(RTNeural::LSTMLayerT<float, In, Out>& layer) {
  layer.setWVals(random_rows(In, 4 * Out));
  layer.setUVals(random_rows(Out, 4 * Out));
  layer.setBVals(std::vector<float>(4 * Out, 0.1F));
}
template <class Activation>
void draw(Activation&) {}

template <int In, int Out, class... Layers>
timed run(const stream_problem& p) {
  auto model = std::make_shared<RTNeural::ModelT<float, In, Out, Layers...>>();
  [&]<std::size_t... I>(std::index_sequence<I...>) { (..., draw(model->template get<I>())); }
  (std::index_sequence_for<Layers...>{});
  model->reset();
  return repeated([model, x = p.x] {
    volatile float y = model->forward(x);
    static_cast<void>(y);
  });
}

timed prepare(const stream_problem& p) {
  using namespace RTNeural;
  if (p.what == stream::mixed)
    return run<1, 1, DenseT<float, 1, 8>, TanhActivationT<float, 8>, Conv1DT<float, 8, 4, 3, 2>,
               TanhActivationT<float, 4>, GRULayerT<float, 4, 8>, DenseT<float, 8, 1>>(p);
  return with_width(p.width, [&]<int N>(std::integral_constant<int, N>) {
    switch (p.what) {
      case stream::dense:
        return run<N, N, DenseT<float, N, N>>(p);
      case stream::conv1d:
        return run<N, N, Conv1DT<float, N, N, 3, 1>>(p);
      case stream::gru:
        return run<N, N, GRULayerT<float, N, N>>(p);
      default:
        return run<N, N, LSTMLayerT<float, N, N>>(p);
    }
  });
}

}  // namespace

stream_peer IKEBANA_PEER_BUILD() {
  return {"RTNeural", "with Eigen", "IKEBANA_RTNEURAL_INCLUDE", {prepare}};
}

}  // namespace bench

#else

bench::stream_peer bench::IKEBANA_PEER_BUILD() {
  return absent<stream_peer>("RTNeural", "IKEBANA_RTNEURAL_INCLUDE");
}

#endif
