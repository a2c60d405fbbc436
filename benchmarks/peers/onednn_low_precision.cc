#include "benchmarks/low_precision_peers.hpp"

#ifdef IKEBANA_HAS_ONEDNN

#include "benchmarks/peers/onednn.hpp"

namespace bench {
namespace {

using dnnl::memory;
using type = memory::data_type;

template <class Problem>
timed multiply(const Problem& p, type a_type, type b_type, type c_type) {
  const auto plain = [](dim_t rows, dim_t columns, type t) {
    return memory::desc({rows, columns}, t, memory::format_tag::ab);
  };
  const auto a = plain(p.m, p.k, a_type), b = plain(p.k, p.n, b_type), c = plain(p.m, p.n, c_type);
  const dnnl::matmul product{
      dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), onednn().engine)};
  const std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, onednn_view(a, p.a)},
                                                  {DNNL_ARG_WEIGHTS, onednn_view(b, p.b)},
                                                  {DNNL_ARG_DST, onednn_view(c, p.result)}};
  return repeated([=] { product.execute(onednn().stream, arguments); });
}

timed prepare_bf16(const bf16_problem& p) { return multiply(p, type::bf16, type::bf16, type::f32); }

timed prepare_int8(const int8_problem& p) { return multiply(p, type::u8, type::s8, type::s32); }

}  // namespace

low_precision_peer onednn_low_precision() {
  return {"oneDNN", onednn_version(), "libdnnl-dev", {prepare_bf16, prepare_int8}};
}

}  // namespace bench

#else

bench::low_precision_peer bench::onednn_low_precision() {
  return absent<low_precision_peer>("oneDNN", "libdnnl-dev");
}

#endif
