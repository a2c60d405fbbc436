#include "benchmarks/stream_peers.hpp"

#ifdef IKEBANA_HAS_ONEDNN

#include "benchmarks/peers/onednn.hpp"

namespace bench {
namespace {

using dnnl::memory;
using tag = memory::format_tag;
constexpr auto f32 = memory::data_type::f32;
constexpr auto infer = dnnl::prop_kind::forward_inference;

memory filled(const memory::desc& d) {
  memory m(d, onednn().engine);
  const auto values =
      random_array<float>(static_cast<dim_t>(d.get_size() / sizeof(float)), 1, -0.3F, 0.3F);
  std::copy_n(values.data(), values.size(), static_cast<float*>(m.get_data_handle()));
  return m;
}

timed dense(const stream_problem& p) {
  const memory::desc x({1, p.width}, f32, tag::nc), w({p.width, p.width}, f32, tag::any),
      b({p.width}, f32, tag::a);
  const dnnl::inner_product_forward::primitive_desc d({infer, x, w, b, x}, onednn().engine);
  const dnnl::inner_product_forward primitive(d);
  const std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, onednn_view(x, p.x)},
                                                  {DNNL_ARG_WEIGHTS, filled(d.weights_desc())},
                                                  {DNNL_ARG_BIAS, filled(b)},
                                                  {DNNL_ARG_DST, memory(x, onednn().engine)}};
  return repeated([=] { primitive.execute(onednn().stream, arguments); });
}

/// Of the last three samples, which a program would have to keep in the order of the layout.
timed conv1d(const stream_problem& p) {
  const memory::desc x({1, p.width, 3}, f32, tag::any), w({p.width, p.width, 3}, f32, tag::any),
      b({p.width}, f32, tag::a), y({1, p.width, 1}, f32, tag::any);
  const dnnl::convolution_forward::primitive_desc d(
      {infer, dnnl::algorithm::convolution_direct, x, w, b, y, {1}, {0}, {0}}, onednn().engine);
  const dnnl::convolution_forward primitive(d);
  const std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, filled(d.src_desc())},
      {DNNL_ARG_WEIGHTS, filled(d.weights_desc())},
      {DNNL_ARG_BIAS, filled(b)},
      {DNNL_ARG_DST, memory(d.dst_desc(), onednn().engine)}};
  return repeated([=] { primitive.execute(onednn().stream, arguments); });
}

/// With weights in oneDNN's preferred layout. A program would exchange the two states.
template <class Primitive, class Make>
timed recurrent(const stream_problem& p, dim_t gates, bool has_cell, Make make) {
  const memory::desc x({1, 1, p.width}, f32, tag::tnc), state({1, 1, 1, p.width}, f32, tag::ldnc),
      weights({1, 1, p.width, gates, p.width}, f32, tag::any),
      bias({1, 1, gates, p.width}, f32, tag::ldgo);
  const typename Primitive::primitive_desc d(make(x, state, weights, bias), onednn().engine);
  const Primitive primitive(d);
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC_LAYER, onednn_view(x, p.x)},
      {DNNL_ARG_SRC_ITER, filled(state)},
      {DNNL_ARG_WEIGHTS_LAYER, filled(d.weights_layer_desc())},
      {DNNL_ARG_WEIGHTS_ITER, filled(d.weights_iter_desc())},
      {DNNL_ARG_BIAS, filled(bias)},
      {DNNL_ARG_DST_LAYER, memory(x, onednn().engine)},
      {DNNL_ARG_DST_ITER, memory(state, onednn().engine)}};
  if (has_cell) {
    arguments.emplace(DNNL_ARG_SRC_ITER_C, filled(state));
    arguments.emplace(DNNL_ARG_DST_ITER_C, memory(state, onednn().engine));
  }
  return repeated([=] { primitive.execute(onednn().stream, arguments); });
}

timed prepare(const stream_problem& p) {
  constexpr auto along = dnnl::rnn_direction::unidirectional_left2right;
  switch (p.what) {
    case stream::dense:
      return dense(p);
    case stream::conv1d:
      return conv1d(p);
    case stream::gru:
      if (p.width < 16) return {};  // oneDNN 2.6.3 ends with a segmentation fault.
      return recurrent<dnnl::gru_forward>(p, 3, false, [=](auto& x, auto& s, auto& w, auto& b) {
        return dnnl::gru_forward::desc(infer, along, x, s, w, w, b, x, s);
      });
    case stream::lstm:
      return recurrent<dnnl::lstm_forward>(p, 4, true, [=](auto& x, auto& s, auto& w, auto& b) {
        return dnnl::lstm_forward::desc(infer, along, x, s, s, w, w, b, x, s, s);
      });
    default:
      return {};
  }
}

}  // namespace

stream_peer onednn_streams() { return {"oneDNN", onednn_version(), "libdnnl-dev", {prepare}}; }

}  // namespace bench

#else

bench::stream_peer bench::onednn_streams() { return absent<stream_peer>("oneDNN", "libdnnl-dev"); }

#endif
