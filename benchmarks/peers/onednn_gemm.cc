#include "benchmarks/gemm_peers.hpp"

#ifdef IKEBANA_HAS_ONEDNN

#include "benchmarks/peers/onednn.hpp"

namespace bench {
namespace {

using dnnl::memory;

timed prepare_fused(const gemm_problem<float>& p) {
  const auto plain = [](dim_t rows, dim_t columns, bool transposed) {
    return memory::desc({rows, columns}, memory::data_type::f32,
                        transposed ? memory::format_tag::ba : memory::format_tag::ab);
  };
  const auto a = plain(p.m, p.k, p.ta), b = plain(p.k, p.n, p.tb), c = plain(p.m, p.n, false),
             bias = plain(1, p.n, false);
  dnnl::post_ops after;
  if (p.residual != nullptr) after.append_binary(dnnl::algorithm::binary_add, c);
  if (p.relu) after.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  const auto description =
      p.bias == nullptr ? dnnl::matmul::desc(a, b, c) : dnnl::matmul::desc(a, b, bias, c);
  const dnnl::matmul product{
      dnnl::matmul::primitive_desc(description, attributes, onednn().engine)};
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, onednn_view(a, p.a)},
                                            {DNNL_ARG_WEIGHTS, onednn_view(b, p.b)},
                                            {DNNL_ARG_DST, onednn_view(c, p.result)}};
  if (p.bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, onednn_view(bias, p.bias));
  if (p.residual != nullptr)
    arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
                      onednn_view(c, p.residual));
  return repeated([=] { product.execute(onednn().stream, arguments); });
}

timed prepare(const gemm_problem<float>& p) {
  if (p.has_epilogue()) return prepare_fused(p);
  return repeated([=] {
    dnnl_sgemm(p.ta ? 'T' : 'N', p.tb ? 'T' : 'N', p.m, p.n, p.k, 1, p.a, p.lda(), p.b, p.ldb(), 0,
               p.result, p.n);
  });
}

}  // namespace

gemm_peer onednn_gemm() { return {"oneDNN", onednn_version(), "libdnnl-dev", {prepare, {}}}; }

}  // namespace bench

#else

bench::gemm_peer bench::onednn_gemm() { return absent<gemm_peer>("oneDNN", "libdnnl-dev"); }

#endif
