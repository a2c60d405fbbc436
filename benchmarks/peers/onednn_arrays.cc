#include "benchmarks/array_peers.hpp"

#ifdef IKEBANA_HAS_ONEDNN

#include <cmath>

#include "benchmarks/peers/onednn.hpp"

namespace bench {
namespace {

using dnnl::memory, dnnl::algorithm;

memory::desc plain(std::initializer_list<dim_t> dims) {
  const memory::dims all(dims);
  return {all, memory::data_type::f32,
          all.size() == 1 ? memory::format_tag::a : memory::format_tag::ab};
}

timed eltwise(const array_problem& p, algorithm what, float alpha = 0) {
  const auto d = plain({p.rows, p.n});
  const dnnl::eltwise_forward run(
      {{dnnl::prop_kind::forward_inference, what, d, alpha, 0.0F}, onednn().engine});
  return repeated([run, x = onednn_view(d, p.x), y = onednn_view(d, p.result)] {
    run.execute(onednn().stream, {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}});
  });
}

timed eltwise_backward(const array_problem& p, algorithm forward, algorithm what,
                       const float* operand, int as) {
  const auto d = plain({p.rows, p.n});
  const dnnl::eltwise_forward::primitive_desc hint(
      {dnnl::prop_kind::forward_training, forward, d, 0.0F, 0.0F}, onednn().engine);
  const dnnl::eltwise_backward run({{what, d, d, 0.0F, 0.0F}, onednn().engine, hint});
  return repeated([run, as, x = onednn_view(d, operand), dy = onednn_view(d, p.dy),
                   dx = onednn_view(d, p.result)] {
    run.execute(onednn().stream, {{as, x}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_SRC, dx}});
  });
}

timed binary(const array_problem& p, algorithm what) {
  const auto d = plain({p.rows, p.n});
  const dnnl::binary run({{what, d, d, d}, onednn().engine});
  return repeated(
      [run, a = onednn_view(d, p.x), b = onednn_view(d, p.dy), y = onednn_view(d, p.result)] {
        run.execute(onednn().stream, {{DNNL_ARG_SRC_0, a}, {DNNL_ARG_SRC_1, b}, {DNNL_ARG_DST, y}});
      });
}

timed softmax(const array_problem& p) {
  const auto d = plain({p.rows, p.n});
  const auto forward = dnnl::prop_kind::forward_training;
  const auto x = onednn_view(d, p.x), y = onednn_view(d, p.result);
  if (p.what == op::softmax) {
    const dnnl::softmax_forward run({{forward, d, 1}, onednn().engine});
    return repeated([=] { run.execute(onednn().stream, {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}}); });
  }
  if (p.what == op::log_softmax) {
    const dnnl::logsoftmax_forward run({{forward, d, 1}, onednn().engine});
    return repeated([=] { run.execute(onednn().stream, {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}}); });
  }
  const dnnl::softmax_forward::primitive_desc hint({forward, d, 1}, onednn().engine);
  const dnnl::softmax_backward run({{d, d, 1}, onednn().engine, hint});
  return repeated([run, y, out = onednn_view(d, p.y), dy = onednn_view(d, p.dy)] {
    run.execute(onednn().stream,
                {{DNNL_ARG_DST, out}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_SRC, y}});
  });
}

timed layer_norm(const array_problem& p) {
  const auto d = plain({p.rows, p.n}), of_rows = plain({p.rows}), of_columns = plain({p.n});
  const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  const dnnl::layer_normalization_forward::primitive_desc description(
      {dnnl::prop_kind::forward_training, d, of_rows, 1e-5F, flags}, onednn().engine);
  const dnnl::layer_normalization_forward forward(description);
  const memory mean(of_rows, onednn().engine), variance(of_rows, onednn().engine);
  const std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, onednn_view(d, p.x)},
      {DNNL_ARG_DST, onednn_view(d, p.result)},
      {DNNL_ARG_MEAN, mean},
      {DNNL_ARG_VARIANCE, variance},
      {DNNL_ARG_SCALE, onednn_view(of_columns, p.gamma)},
      {DNNL_ARG_SHIFT, onednn_view(of_columns, p.beta)}};
  if (p.what == op::layer_norm)
    return repeated([=] { forward.execute(onednn().stream, arguments); });
  forward.execute(onednn().stream, arguments);
  const dnnl::layer_normalization_backward backward(
      {{dnnl::prop_kind::backward, d, d, of_rows, 1e-5F, flags}, onednn().engine, description});
  const std::unordered_map<int, memory> of_backward{
      {DNNL_ARG_SRC, onednn_view(d, p.x)},
      {DNNL_ARG_DIFF_DST, onednn_view(d, p.dy)},
      {DNNL_ARG_DIFF_SRC, onednn_view(d, p.result)},
      {DNNL_ARG_MEAN, mean},
      {DNNL_ARG_VARIANCE, variance},
      {DNNL_ARG_SCALE, onednn_view(of_columns, p.gamma)},
      {DNNL_ARG_SHIFT, onednn_view(of_columns, p.beta)},
      {DNNL_ARG_DIFF_SCALE, memory(of_columns, onednn().engine)},
      {DNNL_ARG_DIFF_SHIFT, memory(of_columns, onednn().engine)}};
  return repeated([=] { backward.execute(onednn().stream, of_backward); });
}

timed prepare(const array_problem& p) {
  switch (p.what) {
    case op::relu:
      return eltwise(p, algorithm::eltwise_relu);
    case op::tanh:
      return eltwise(p, algorithm::eltwise_tanh);
    case op::sigmoid:
      return eltwise(p, algorithm::eltwise_logistic);
    case op::exp:
      return eltwise(p, algorithm::eltwise_exp);
    case op::log:
      return eltwise(p, algorithm::eltwise_log);
    case op::gelu:
      return eltwise(p, algorithm::eltwise_gelu_erf);
    case op::gelu_tanh:
      return eltwise(p, algorithm::eltwise_gelu_tanh);
    case op::silu:
      return eltwise(p, algorithm::eltwise_swish, 1);
    case op::add:
      return binary(p, algorithm::binary_add);
    case op::multiply:
      return binary(p, algorithm::binary_mul);
    case op::relu_backward:
      return eltwise_backward(p, algorithm::eltwise_relu_use_dst_for_bwd,
                              algorithm::eltwise_relu_use_dst_for_bwd, p.y, DNNL_ARG_DST);
    case op::tanh_backward:
      return eltwise_backward(p, algorithm::eltwise_tanh_use_dst_for_bwd,
                              algorithm::eltwise_tanh_use_dst_for_bwd, p.y, DNNL_ARG_DST);
    case op::sigmoid_backward:
      return eltwise_backward(p, algorithm::eltwise_logistic_use_dst_for_bwd,
                              algorithm::eltwise_logistic_use_dst_for_bwd, p.y, DNNL_ARG_DST);
    case op::gelu_backward:
      return eltwise_backward(p, algorithm::eltwise_gelu_erf, algorithm::eltwise_gelu_erf, p.x,
                              DNNL_ARG_SRC);
    case op::softmax:
    case op::log_softmax:
    case op::softmax_backward:
      return softmax(p);
    case op::layer_norm:
    case op::layer_norm_backward:
      return layer_norm(p);
    default:
      return {};
  }
}

}  // namespace

array_peer onednn_arrays() { return {"oneDNN", onednn_version(), "libdnnl-dev", {prepare}}; }

}  // namespace bench

#else

bench::array_peer bench::onednn_arrays() { return absent<array_peer>("oneDNN", "libdnnl-dev"); }

#endif
