#include "benchmarks/layer_peers.hpp"

#ifdef IKEBANA_HAS_ONEDNN

#include "benchmarks/peers/onednn.hpp"

namespace bench {
namespace {

using dnnl::memory;

struct layouts {
  memory::desc x, y, plain_x, plain_y;
};

memory arranged(const memory::desc& wanted, const memory::desc& plain, const float* data) {
  memory given = onednn_view(plain, data), copy(wanted, onednn().engine);
  if (wanted == plain) return given;
  dnnl::reorder(given, copy).execute(onednn().stream, given, copy);
  return copy;
}

/// Runs with a result in either layout, which is copied once for comparison.
timed finish(const dnnl::primitive& run, std::unordered_map<int, memory> arguments, int result,
             const memory::desc& plain, float* to) {
  memory view = onednn_view(plain, to), own = arguments.at(result);
  if (own.get_desc() == plain) {
    arguments[result] = view;
  } else {
    run.execute(onednn().stream, arguments);
    dnnl::reorder(own, view).execute(onednn().stream, own, view);
  }
  return repeated([=] { run.execute(onednn().stream, arguments); });
}

timed pool(const layer_problem& p, const layouts& l) {
  const bool is_max = p.what == layer::max_pool || p.what == layer::max_pool_backward;
  const auto algorithm =
      is_max ? dnnl::algorithm::pooling_max : dnnl::algorithm::pooling_avg_include_padding;
  const memory::dims strides{p.stride, p.stride}, kernel{p.kernel, p.kernel},
      padding{p.padding, p.padding};
  const dnnl::pooling_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, algorithm, l.x, l.y, strides, kernel, padding, padding},
      onednn().engine);
  const memory x = arranged(l.x, l.plain_x, p.x), y(l.y, onednn().engine);
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}};
  if (is_max)
    arguments.emplace(DNNL_ARG_WORKSPACE, memory(forward.workspace_desc(), onednn().engine));
  const dnnl::pooling_forward run(forward);
  if (!p.is_backward()) return finish(run, arguments, DNNL_ARG_DST, l.plain_y, p.result);
  run.execute(onednn().stream, arguments);
  std::unordered_map<int, memory> back{{DNNL_ARG_DIFF_DST, arranged(l.y, l.plain_y, p.dy)},
                                       {DNNL_ARG_DIFF_SRC, memory(l.x, onednn().engine)}};
  if (is_max) back.emplace(DNNL_ARG_WORKSPACE, arguments.at(DNNL_ARG_WORKSPACE));
  const dnnl::pooling_backward backward(
      {{algorithm, l.x, l.y, strides, kernel, padding, padding}, onednn().engine, forward});
  return finish(backward, back, DNNL_ARG_DIFF_SRC, l.plain_x, p.result);
}

timed batch_norm(const layer_problem& p, const layouts& l) {
  const memory::desc channels({p.channels}, memory::data_type::f32, memory::format_tag::a);
  const bool infers = p.what == layer::batch_norm_inference;
  auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  if (infers) flags = flags | dnnl::normalization_flags::use_global_stats;
  const dnnl::batch_normalization_forward::primitive_desc forward(
      {infers ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training, l.x, 1e-5F,
       flags},
      onednn().engine);
  const memory x = arranged(l.x, l.plain_x, p.x), mean(channels, onednn().engine),
               variance(channels, onednn().engine), scale = onednn_view(channels, p.gamma),
               shift = onednn_view(channels, p.beta);
  if (infers) {
    std::fill_n(static_cast<float*>(mean.get_data_handle()), p.channels, 0.0F);
    std::fill_n(static_cast<float*>(variance.get_data_handle()), p.channels, 1.0F);
  }
  const std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, x},       {DNNL_ARG_DST, memory(l.x, onednn().engine)},
      {DNNL_ARG_MEAN, mean},   {DNNL_ARG_VARIANCE, variance},
      {DNNL_ARG_SCALE, scale}, {DNNL_ARG_SHIFT, shift}};
  const dnnl::batch_normalization_forward run(forward);
  if (!p.is_backward()) return finish(run, arguments, DNNL_ARG_DST, l.plain_x, p.result);
  run.execute(onednn().stream, arguments);
  const dnnl::batch_normalization_backward backward(
      {{dnnl::prop_kind::backward, l.x, l.x, 1e-5F, flags}, onednn().engine, forward});
  return finish(backward,
                {{DNNL_ARG_SRC, x},
                 {DNNL_ARG_DIFF_DST, arranged(l.x, l.plain_x, p.dy)},
                 {DNNL_ARG_DIFF_SRC, memory(l.x, onednn().engine)},
                 {DNNL_ARG_MEAN, mean},
                 {DNNL_ARG_VARIANCE, variance},
                 {DNNL_ARG_SCALE, scale},
                 {DNNL_ARG_SHIFT, shift},
                 {DNNL_ARG_DIFF_SCALE, memory(channels, onednn().engine)},
                 {DNNL_ARG_DIFF_SHIFT, memory(channels, onednn().engine)}},
                DNNL_ARG_DIFF_SRC, l.plain_x, p.result);
}

timed prepare(const layer_problem& p, bool blocked) {
  if (blocked && p.channels % 16 != 0) return {};
  if (p.what == layer::group_norm) return {};
  using tag = memory::format_tag;
  const memory::dims x{p.batch, p.channels, p.size, p.size},
      y{p.batch, p.channels, p.out(), p.out()};
  const auto f32 = memory::data_type::f32;
  const tag t = blocked ? tag::nChw16c : tag::nchw;
  const layouts l{{x, f32, t}, {y, f32, t}, {x, f32, tag::nchw}, {y, f32, tag::nchw}};
  return p.what < layer::batch_norm ? pool(p, l) : batch_norm(p, l);
}

layer_peer make(const char* name, bool blocked) {
  return {name, onednn_version(), "libdnnl-dev", {[=](const layer_problem& p) {
            return prepare(p, blocked);
          }}};
}

}  // namespace

layer_peer onednn_layers() { return make("oneDNN NCHW", false); }
layer_peer onednn_blocked_layers() { return make("oneDNN blocked", true); }

}  // namespace bench

#else

bench::layer_peer bench::onednn_layers() {
  return absent<layer_peer>("oneDNN NCHW", "libdnnl-dev");
}
bench::layer_peer bench::onednn_blocked_layers() {
  return absent<layer_peer>("oneDNN blocked", "libdnnl-dev");
}

#endif
