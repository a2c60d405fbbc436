#include "benchmarks/conv_peers.hpp"

#ifdef IKEBANA_HAS_ONEDNN

#include "benchmarks/peers/onednn.hpp"

namespace bench {
namespace {

using dnnl::memory;
using tag = memory::format_tag;

/// An operand in oneDNN's layout: copied once if that differs.
memory arranged(const memory::desc& wanted, const memory::desc& plain, const float* data) {
  memory given = onednn_view(plain, data);
  if (wanted == plain) return given;
  memory copy(wanted, onednn().engine);
  dnnl::reorder(given, copy).execute(onednn().stream, given, copy);
  return copy;
}

timed prepare(const conv_problem& p, bool any_layout) {
  const auto f32 = memory::data_type::f32;
  const memory::dims x_dims{p.batch, p.inputs, p.height, p.width},
      y_dims{p.batch, p.outputs, p.out(p.height), p.out(p.width)},
      w_dims = p.groups == 1 ? memory::dims{p.outputs, p.inputs, p.kernel, p.kernel}
                             : memory::dims{p.groups, p.outputs / p.groups, p.inputs / p.groups,
                                            p.kernel, p.kernel};
  const tag w_tag = p.groups == 1 ? tag::oihw : tag::goihw;
  const memory::desc x_plain(x_dims, f32, tag::nchw), y_plain(y_dims, f32, tag::nchw),
      w_plain(w_dims, f32, w_tag), bias_plain({p.outputs}, f32, tag::a);
  // Callers keep weights in the layout of their library, so it is always free.
  const memory::desc x(x_dims, f32, any_layout ? tag::any : tag::nchw),
      y(y_dims, f32, any_layout ? tag::any : tag::nchw), w(w_dims, f32, tag::any);
  const memory::dims strides{p.stride, p.stride}, dilation{p.dilation - 1, p.dilation - 1},
      padding{p.padding, p.padding};
  const auto algorithm = dnnl::algorithm::convolution_auto;
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, algorithm, x, w, bias_plain, y, strides, dilation,
       padding, padding},
      onednn().engine);

  dnnl::primitive run;
  std::unordered_map<int, memory> arguments;
  memory result;
  memory::desc plain;
  if (p.direction == pass::forward) {
    run = dnnl::convolution_forward(forward);
    plain = y_plain;
    result = forward.dst_desc() == plain ? onednn_view(plain, p.result)
                                         : memory(forward.dst_desc(), onednn().engine);
    arguments = {{DNNL_ARG_SRC, arranged(forward.src_desc(), x_plain, p.x)},
                 {DNNL_ARG_WEIGHTS, arranged(forward.weights_desc(), w_plain, p.w)},
                 {DNNL_ARG_BIAS, onednn_view(bias_plain, p.bias)},
                 {DNNL_ARG_DST, result}};
  } else if (p.direction == pass::backward_data) {
    const dnnl::convolution_backward_data::primitive_desc d(
        {algorithm, x, w, y, strides, dilation, padding, padding}, onednn().engine, forward);
    run = dnnl::convolution_backward_data(d);
    plain = x_plain;
    result = d.diff_src_desc() == plain ? onednn_view(plain, p.result)
                                        : memory(d.diff_src_desc(), onednn().engine);
    arguments = {{DNNL_ARG_DIFF_DST, arranged(d.diff_dst_desc(), y_plain, p.dy)},
                 {DNNL_ARG_WEIGHTS, arranged(d.weights_desc(), w_plain, p.w)},
                 {DNNL_ARG_DIFF_SRC, result}};
  } else {
    const dnnl::convolution_backward_weights::primitive_desc d(
        {algorithm, x, w, y, strides, dilation, padding, padding}, onednn().engine, forward);
    run = dnnl::convolution_backward_weights(d);
    plain = w_plain;
    result = d.diff_weights_desc() == plain ? onednn_view(plain, p.result)
                                            : memory(d.diff_weights_desc(), onednn().engine);
    arguments = {{DNNL_ARG_SRC, arranged(d.src_desc(), x_plain, p.x)},
                 {DNNL_ARG_DIFF_DST, arranged(d.diff_dst_desc(), y_plain, p.dy)},
                 {DNNL_ARG_DIFF_WEIGHTS, result}};
  }
  if (result.get_desc() != plain) {
    // For comparison only: not measured.
    run.execute(onednn().stream, arguments);
    memory view = onednn_view(plain, p.result);
    dnnl::reorder(result, view).execute(onednn().stream, result, view);
  }
  return repeated([=] { run.execute(onednn().stream, arguments); });
}

conv_peer make(const char* name, bool any_layout) {
  return {name, onednn_version(), "libdnnl-dev", {[=](const conv_problem& p) {
            return prepare(p, any_layout);
          }}};
}

}  // namespace

conv_peer onednn_conv() { return make("oneDNN", true); }
conv_peer onednn_nchw_conv() { return make("oneDNN NCHW", false); }

}  // namespace bench

#else

bench::conv_peer bench::onednn_conv() { return absent<conv_peer>("oneDNN", "libdnnl-dev"); }
bench::conv_peer bench::onednn_nchw_conv() {
  return absent<conv_peer>("oneDNN NCHW", "libdnnl-dev");
}

#endif
