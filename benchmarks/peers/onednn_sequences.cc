#include "benchmarks/sequence_peers.hpp"

#ifdef IKEBANA_HAS_ONEDNN

#include "benchmarks/peers/onednn.hpp"

namespace bench {
namespace {

using dnnl::memory;
using tag = memory::format_tag;

/// With weights in oneDNN's preferred layout.
template <class Primitive, class Make>
timed run(const sequence_problem& p, dim_t gates, bool has_cell, Make make) {
  const auto f32 = memory::data_type::f32;
  const memory::desc x({p.length, p.batch, p.width}, f32, tag::tnc),
      state({1, 1, p.batch, p.width}, f32, tag::ldnc),
      weights({1, 1, p.width, gates, p.width}, f32, tag::any),
      bias({1, 1, gates, p.width}, f32, tag::ldgo);
  const typename Primitive::primitive_desc description(make(x, state, weights, bias, x),
                                                       onednn().engine);
  const Primitive primitive(description);
  const auto filled = [](const memory::desc& d) {
    memory m(d, onednn().engine);
    const auto values = random_array<float>(static_cast<dim_t>(d.get_size() / sizeof(float)), 1);
    std::copy_n(values.data(), values.size(), static_cast<float*>(m.get_data_handle()));
    return m;
  };
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC_LAYER, onednn_view(x, p.x)},
      {DNNL_ARG_SRC_ITER, filled(state)},
      {DNNL_ARG_WEIGHTS_LAYER, filled(description.weights_layer_desc())},
      {DNNL_ARG_WEIGHTS_ITER, filled(description.weights_iter_desc())},
      {DNNL_ARG_BIAS, filled(bias)},
      {DNNL_ARG_DST_LAYER, memory(x, onednn().engine)},
      {DNNL_ARG_DST_ITER, memory(state, onednn().engine)}};
  if (has_cell) {
    arguments.emplace(DNNL_ARG_SRC_ITER_C, filled(state));
    arguments.emplace(DNNL_ARG_DST_ITER_C, memory(state, onednn().engine));
  }
  return repeated([=] { primitive.execute(onednn().stream, arguments); });
}

timed prepare(const sequence_problem& p) {
  if (p.trains || p.what < sequence::rnn) return {};
  constexpr auto infer = dnnl::prop_kind::forward_inference;
  constexpr auto along = dnnl::rnn_direction::unidirectional_left2right;
  if (p.what == sequence::lstm)
    return run<dnnl::lstm_forward>(p, 4, true, [=](auto& x, auto& s, auto& w, auto& b, auto& y) {
      return dnnl::lstm_forward::desc(infer, along, x, s, s, w, w, b, y, s, s);
    });
  if (p.what == sequence::rnn)
    return run<dnnl::vanilla_rnn_forward>(
        p, 1, false, [=](auto& x, auto& s, auto& w, auto& b, auto& y) {
          return dnnl::vanilla_rnn_forward::desc(infer, dnnl::algorithm::eltwise_tanh, along, x, s,
                                                 w, w, b, y, s);
        });
  return run<dnnl::gru_forward>(p, 3, false, [=](auto& x, auto& s, auto& w, auto& b, auto& y) {
    return dnnl::gru_forward::desc(infer, along, x, s, w, w, b, y, s);
  });
}

}  // namespace

sequence_peer onednn_sequences() { return {"oneDNN", onednn_version(), "libdnnl-dev", {prepare}}; }

}  // namespace bench

#else

bench::sequence_peer bench::onednn_sequences() {
  return absent<sequence_peer>("oneDNN", "libdnnl-dev");
}

#endif
