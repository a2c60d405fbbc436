// Kernels give the same bits with any number of threads.

#include "ikebana/cpu/threads.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "ikebana/core/random.hpp"
#include "ikebana/cpu/attention.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/embedding.hpp"
#include "ikebana/cpu/layer_norm.hpp"
#include "ikebana/cpu/norm.hpp"
#include "ikebana/cpu/optim.hpp"
#include "ikebana/cpu/pointwise.hpp"
#include "ikebana/cpu/recurrent.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/cpu/softmax.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

namespace {

/// Large enough for several threads, and not a multiple of anything.
constexpr dim_t large = 140003, rows = 421, columns = 331;

template <class T>
std::vector<T> numbers(dim_t n, std::uint64_t seed, double scale = 1, double offset = 0) {
  generator r(seed);
  std::vector<T> x(static_cast<std::size_t>(n));
  for (T& v : x) v = static_cast<T>(r.number() * scale + offset);
  return x;
}
template <class T>
std::vector<T> room(dim_t n, T value = T(7)) {
  return std::vector<T>(static_cast<std::size_t>(n), value);
}

template <class T>
void append(std::string& bytes, const std::vector<T>& x) {
  bytes.append(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(T));
}

/// f(to...) writes arrays that are equal before each call.
template <class F, class... Array>
void check_threads(const char* what, F f, const Array&... before) {
  INFO(std::string(what));
  std::string expected;
  for (int threads : {1, 2, 3, 7}) {
    const ikebana::scoped_num_threads own(threads);
    std::string got;
    [&](Array... arrays) {
      f(arrays.data()...);
      (append(got, arrays), ...);
    }(before...);
    if (threads == 1) expected = got;
    INFO(threads << " threads");
    const bool same = got == expected;
    CHECK(same);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("functions of elements", T, float, double) {
  const auto x = numbers<T>(large, 1, 3), dy = numbers<T>(large, 2), y = numbers<T>(large, 3);
  const auto to = room<T>(large);
  using unary = void (*)(dim_t, const T*, T*);
  const unary forwards[] = {cpu::relu_forward<T>,
                            cpu::tanh_forward<T>,
                            cpu::sigmoid_forward<T>,
                            cpu::gelu_forward<T>,
                            cpu::gelu_tanh_forward<T>,
                            cpu::silu_forward<T>,
                            cpu::exp<T>,
                            cpu::log<T>,
                            cpu::erf<T>};
  for (const unary f : forwards)
    check_threads(
        "forward", [&](T* out) { f(large, x.data(), out); }, to);
  using binary = void (*)(dim_t, const T*, const T*, T*);
  const binary backwards[] = {cpu::relu_backward<T>,
                              cpu::tanh_backward<T>,
                              cpu::sigmoid_backward<T>,
                              cpu::gelu_backward<T>,
                              cpu::gelu_tanh_backward<T>,
                              cpu::silu_backward<T>,
                              cpu::add<T>,
                              cpu::multiply<T>};
  for (const binary f : backwards)
    check_threads(
        "backward", [&](T* out) { f(large, y.data(), dy.data(), out); }, to);
  check_threads(
      "axpy", [&](T* out) { cpu::axpy(large, T(0.3), x.data(), out); }, y);
  check_threads(
      "scale", [&](T* out) { cpu::scale(large, T(0.3), out); }, y);
  check_threads(
      "fill", [&](T* out) { cpu::fill(large, out, T(0.3)); }, to);
  const ikebana::random_stream stream(ikebana::seed{5}, 6, 7);
  check_threads(
      "dropout", [&](T* out) { cpu::dropout(large, x.data(), out, 0.4, stream, 3); }, to);
  for (int i = 0; i < 9; ++i) {
    const auto f = static_cast<cpu::pointwise>(i);
    check_threads(
        "pointwise",
        [&](T* out) { cpu::pointwise_forward(f, large, T(0.5), T(1), T(2), x.data(), out); }, to);
    check_threads(
        "pointwise, backward",
        [&](T* out) {
          cpu::pointwise_backward(f, large, T(0.5), T(1), T(2), x.data(), dy.data(), out);
        },
        to);
  }
}

TEST_CASE_TEMPLATE("sums", T, float, double) {
  const auto x = numbers<T>(large, 1, 1, 0.5), y = numbers<T>(large, 2);
  const auto one = room<T>(1);
  for (dim_t n : {dim_t{4096}, dim_t{65536}, dim_t{65537}, dim_t{131072}, large}) {
    check_threads(
        "sum", [&](T* out) { *out = cpu::sum(n, x.data()); }, one);
    check_threads(
        "dot", [&](T* out) { *out = cpu::dot(n, x.data(), y.data()); }, one);
    check_threads(
        "norm", [&](T* out) { *out = static_cast<T>(cpu::squared_norm(n, x.data())); }, one);
    check_threads(
        "mse", [&](T* out, T* dx) { *out = cpu::mse(n, x.data(), y.data(), dx, T(0.5)); }, one,
        room<T>(n));
  }
  for (bool accumulate : {false, true})
    check_threads(
        "columns",
        [&](T* out) {
          cpu::column_sums(rows - 20, columns, x.data(), columns + 6, out, accumulate);
        },
        room<T>(columns));
}

TEST_CASE_TEMPLATE("softmax and cross entropy", T, float, double) {
  const auto x = numbers<T>(large * 2, 1, 4), dy = numbers<T>(large * 2, 2);
  const auto to = room<T>(large * 2);
  struct sizes {
    dim_t outer, n, inner;
  };
  for (const sizes& s :
       {sizes{rows, columns, 1}, sizes{20011, 11, 1}, sizes{5, 7, 6007}, sizes{30, 6007, 1}}) {
    const dim_t outer = s.outer, n = s.n, inner = s.inner;
    INFO(outer << " x " << n << " x " << inner);
    check_threads(
        "softmax", [&](T* y) { cpu::softmax_forward(outer, n, inner, x.data(), y); }, to);
    check_threads(
        "log softmax", [&](T* y) { cpu::log_softmax_forward(outer, n, inner, x.data(), y); }, to);
    check_threads(
        "softmax, backward",
        [&](T* dx) { cpu::softmax_backward(outer, n, inner, x.data(), dy.data(), dx); }, to);
    check_threads(
        "log softmax, backward",
        [&](T* dx) { cpu::log_softmax_backward(outer, n, inner, x.data(), dy.data(), dx); }, to);
    if (inner != 1) continue;
    std::vector<std::int64_t> target(static_cast<std::size_t>(outer));
    generator r(3);
    for (auto& t : target) t = r.below(5) == 0 ? -100 : r.below(n);
    for (double smoothing : {0.0, 0.1})
      check_threads(
          "cross entropy",
          [&](T* dx, T* sum, std::int64_t* counted) {
            cpu::cross_entropy(outer, n, x.data(), target.data(), T(smoothing), -100, sum, counted,
                               dx, T(0.01));
          },
          to, room<T>(1), room<std::int64_t>(1));
  }
}

TEST_CASE_TEMPLATE("norms of rows", T, float, double) {
  const auto x = numbers<T>(large * 2, 1, 1, 0.5), dy = numbers<T>(large * 2, 2),
             gamma = numbers<T>(7000, 3, 1, 1), beta = numbers<T>(7000, 4);
  const auto to = room<T>(large * 2), of_row = room<T>(3001), of_column = room<T>(7000);
  const T eps = T(1e-5);
  struct sizes {
    dim_t m, n, groups;
  };
  for (const sizes& s :
       {sizes{rows, columns, 1}, sizes{612, columns, 3}, sizes{3001, 71, 1}, sizes{29, 6007, 1}}) {
    const dim_t m = s.m, n = s.n, groups = s.groups;
    INFO(m << " x " << n << " in " << groups);
    auto mean = of_row, invstd = of_row;
    cpu::layer_norm_forward<T>(m, n, groups, x.data(), gamma.data(), beta.data(), eps,
                               room<T>(m * n).data(), mean.data(), invstd.data());
    check_threads(
        "layer norm",
        [&](T* y, T* means, T* invstds) {
          cpu::layer_norm_forward(m, n, groups, x.data(), gamma.data(), beta.data(), eps, y, means,
                                  invstds);
        },
        to, of_row, of_row);
    for (bool accumulate : {false, true})
      check_threads(
          "layer norm, backward",
          [&](T* dx, T* dgamma, T* dbeta) {
            cpu::layer_norm_backward(m, n, groups, x.data(), dy.data(), gamma.data(), mean.data(),
                                     invstd.data(), dx, dgamma, dbeta, accumulate);
          },
          to, of_column, of_column);
    check_threads(
        "layer norm, backward to x alone",
        [&](T* dx) {
          cpu::layer_norm_backward<T>(m, n, groups, x.data(), dy.data(), gamma.data(), mean.data(),
                                      invstd.data(), dx, nullptr, nullptr, false);
        },
        to);
    if (groups != 1) continue;
    check_threads(
        "sum and layer norm",
        [&](T* total, T* y, T* means, T* invstds) {
          cpu::add_layer_norm_forward(m, n, x.data(), dy.data(), total, gamma.data(), beta.data(),
                                      eps, y, means, invstds);
        },
        to, to, of_row, of_row);
    check_threads(
        "rms norm",
        [&](T* y, T* inverse) {
          cpu::rms_norm_forward(m, n, x.data(), gamma.data(), eps, y, inverse);
        },
        to, of_row);
    check_threads(
        "rms norm, backward",
        [&](T* dx, T* dgamma) {
          cpu::rms_norm_backward(m, n, x.data(), dy.data(), gamma.data(), invstd.data(), dx, dgamma,
                                 false);
        },
        to, of_column);
  }
  constexpr dim_t batch = 13, channels = 12, inner = 1409, groups = 4;
  const auto mean = numbers<T>(batch * groups, 5), invstd = numbers<T>(batch * groups, 6, 0.1, 1);
  check_threads(
      "group norm",
      [&](T* y, T* means, T* invstds, T* variances) {
        cpu::group_norm_forward(batch, channels, inner, groups, x.data(), gamma.data(), beta.data(),
                                eps, y, means, invstds, variances);
      },
      to, of_row, of_row, of_row);
  check_threads(
      "group norm, backward",
      [&](T* dx, T* dgamma, T* dbeta) {
        cpu::group_norm_backward(batch, channels, inner, groups, x.data(), dy.data(), gamma.data(),
                                 mean.data(), invstd.data(), dx, dgamma, dbeta, true);
      },
      to, of_column, of_column);
}

TEST_CASE_TEMPLATE("batch norm", T, float, double) {
  const auto x = numbers<T>(large * 2, 1, 1, 0.5), dy = numbers<T>(large * 2, 2),
             gamma = numbers<T>(1000, 3, 1, 1), beta = numbers<T>(1000, 4),
             mean = numbers<T>(1000, 5), variance = numbers<T>(1000, 6, 0.4, 1);
  const auto to = room<T>(large * 2), of_channel = room<T>(1000, T(1));
  const T eps = T(1e-5);
  struct sizes {
    dim_t batch, channels, inner;
  };
  for (const sizes& s :
       {sizes{5, 37, 1201}, sizes{rows, columns, 1}, sizes{3, 2, 30011}, sizes{40, 300, 19}}) {
    const dim_t batch = s.batch, channels = s.channels, inner = s.inner;
    INFO(batch << " x " << channels << " x " << inner);
    for (const auto function : {cpu::activation::none, cpu::activation::relu}) {
      check_threads(
          "training",
          [&](T* y, T* means, T* invstds, T* running_mean, T* running_var) {
            cpu::batch_norm_forward_train(batch, channels, inner, x.data(), gamma.data(),
                                          beta.data(), eps, y, means, invstds, running_mean,
                                          running_var, T(0.1), function);
          },
          to, of_channel, of_channel, of_channel, of_channel);
      check_threads(
          "evaluation",
          [&](T* y) {
            cpu::batch_norm_forward_eval<T>(batch, channels, inner, x.data(), nullptr, nullptr, eps,
                                            mean.data(), variance.data(), y, function);
          },
          to);
    }
    check_threads(
        "backward",
        [&](T* dx, T* dgamma, T* dbeta) {
          cpu::batch_norm_backward(batch, channels, inner, x.data(), dy.data(), gamma.data(),
                                   mean.data(), variance.data(), dx, dgamma, dbeta, true);
        },
        to, of_channel, of_channel);
    check_threads(
        "backward in evaluation",
        [&](T* dx) {
          cpu::batch_norm_backward_eval<T>(batch, channels, inner, x.data(), dy.data(), nullptr,
                                           eps, mean.data(), variance.data(), dx, nullptr, nullptr,
                                           false);
        },
        to);
  }
}

TEST_CASE_TEMPLATE("attention", T, float, double) {
  constexpr cpu::attention_sizes n{5, 3, 67, 71, 24};
  constexpr dim_t width = n.heads * n.width;
  const auto q = numbers<T>(n.batch * n.queries * width, 1),
             k = numbers<T>(n.batch * n.keys * width, 2),
             v = numbers<T>(n.batch * n.keys * width, 3),
             dout = numbers<T>(n.batch * n.queries * width, 4),
             added = numbers<T>(n.queries * n.keys, 5);
  const cpu::attention_operand<const T> queries{q.data(), width, n.queries * width},
      keys{k.data(), width, n.keys * width}, values{v.data(), width, n.keys * width};
  const cpu::attention_dropout dropped{0.2, ikebana::random_stream(ikebana::seed{5}, 6)};
  const auto scratch = room<T>(cpu::attention_scratch(n));
  const auto of_queries = room<T>(n.batch * n.queries * width),
             of_keys = room<T>(n.batch * n.keys * width),
             normalizers = room<T>(n.batch * n.heads * 2 * n.queries);
  for (const bool has_mask : {false, true}) {
    cpu::attention_masks<T> masks;
    masks.causal = !has_mask;
    masks.added = has_mask ? added.data() : nullptr;
    auto out = of_queries, sums = normalizers;
    const auto forward = [&](T* to, T* beside, T* memory) {
      cpu::attention_forward<T>(n, queries, keys, values, masks, dropped,
                                {to, width, n.queries * width}, beside, memory);
    };
    forward(out.data(), sums.data(), std::vector<T>(scratch).data());
    // The contents of scratch memory are not a result.
    check_threads(
        "forward", [&](T* to, T* beside) { forward(to, beside, std::vector<T>(scratch).data()); },
        of_queries, normalizers);
    check_threads(
        "backward",
        [&](T* dq, T* dk, T* dv, T* dadded) {
          cpu::attention_backward<T>(n, queries, keys, values, masks, dropped,
                                     {out.data(), width, n.queries * width}, sums.data(),
                                     {dq, width, n.queries * width}, {dk, width, n.keys * width},
                                     {dv, width, n.keys * width}, has_mask ? dadded : nullptr,
                                     std::vector<T>(scratch).data());
        },
        dout, of_keys, of_keys, added);
  }
}

TEST_CASE_TEMPLATE("gates and products of recurrent modules", T, float, double) {
  constexpr dim_t m = 307, n = 211, k = 83;
  const auto row = [](auto* p, dim_t width) {
    return cpu::rows_of<std::remove_pointer_t<decltype(p)>>{p, width};
  };
  const auto sums = numbers<T>(m * 4 * n, 1, 2), c = numbers<T>(m * n, 2), h = numbers<T>(m * n, 3),
             dh = numbers<T>(m * n, 4), dy = numbers<T>(m * n, 5);
  const auto to = room<T>(m * n), wide = room<T>(m * 4 * n);
  const cpu::rows_of<const T> before = row(c.data(), n), gradient = row(dh.data(), n),
                              output = row(dy.data(), n), gates = row(sums.data(), 4 * n);
  for (bool rectified : {false, true}) {
    check_threads(
        "rnn",
        [&](T* g, T* to_h, T* y) {
          cpu::rnn_gates<T>(m, n, rectified, row(g, 4 * n), row(to_h, n), row(y, n));
        },
        sums, to, to);
    check_threads(
        "rnn, backward",
        [&](T* dg) {
          cpu::rnn_gates_backward<T>(m, n, rectified, gates, gradient, output, row(dg, 4 * n));
        },
        wide);
  }
  check_threads(
      "lstm",
      [&](T* g, T* to_c, T* c_before, T* tanh_c, T* to_h) {
        cpu::lstm_gates<T>(m, n, row(g, 4 * n), row(to_c, n), row(c_before, n), row(tanh_c, n),
                           row(to_h, n));
      },
      sums, c, to, to, to);
  check_threads(
      "lstm, backward",
      [&](T* dc, T* dg) {
        cpu::lstm_gates_backward<T>(m, n, gates, before, row(h.data(), n), gradient, output,
                                    row(dc, n), row(dg, 4 * n));
      },
      c, wide);
  check_threads(
      "gru",
      [&](T* g, T* new_from_h, T* to_h, T* y) {
        cpu::gru_gates<T>(m, n, row(g, 4 * n), gates, row(new_from_h, n), before, row(to_h, n),
                          row(y, n));
      },
      sums, to, to, to);
  check_threads(
      "gru, backward",
      [&](T* d, T* dg, T* dfrom_h) {
        cpu::gru_gates_backward<T>(m, n, gates, row(h.data(), n), before, row(d, n), output,
                                   row(dg, 4 * n), row(dfrom_h, 4 * n));
      },
      dh, wide, wide);
  for (bool adds : {false, true}) {
    check_threads(
        "rows", [&](T* y) { cpu::move_rows<T>(m, n, before, row(y, n), adds); }, h);
    auto packed = room<T>(cpu::packed_recurrent_size(4 * n, k));
    cpu::pack_recurrent<T>(4 * n, k, sums.data(), packed.data());
    check_threads(
        "product",
        [&](T* y) {
          cpu::recurrent_product<T>(m, 4 * n, k, packed.data(), dy.data(), gradient, row(y, 4 * n),
                                    adds);
        },
        sums);
  }
}

TEST_CASE_TEMPLATE("rows of a table", T, float, double) {
  constexpr dim_t n = 20011, width = 13, table_rows = 997;
  const auto table = numbers<T>(table_rows * width, 1), dy = numbers<T>(n * width, 2);
  std::vector<std::int64_t> index(static_cast<std::size_t>(n));
  generator r(3);
  for (auto& i : index) i = r.below(table_rows);
  check_threads(
      "gather", [&](T* y) { cpu::gather_rows(n, width, index.data(), table.data(), y); },
      room<T>(n * width));
  for (bool by_frequency : {false, true})
    for (bool accumulate : {false, true})
      check_threads(
          "scatter",
          [&](T* to, std::int32_t* frequencies) {
            cpu::scatter_rows(n, width, index.data(), dy.data(), table_rows, 5,
                              by_frequency ? frequencies : nullptr, to, accumulate);
          },
          table, room<std::int32_t>(table_rows));
}

TEST_CASE_TEMPLATE("steps of optimizers", T, float, double) {
  const auto p = numbers<T>(large, 1), g = numbers<T>(large, 2), m = numbers<T>(large, 3),
             v = numbers<T>(large, 4, 0.4, 0.5);
  for (bool nesterov : {false, true})
    check_threads(
        "sgd",
        [&](T* to, T* momentum) {
          cpu::sgd_step(large, to, g.data(), momentum, T(0.1), T(0.9), T(0), T(0.01), nesterov,
                        false, false, T(0.7));
        },
        p, m);
  for (bool decoupled : {false, true})
    check_threads(
        "adam",
        [&](T* to, T* first, T* second, T* most) {
          cpu::adam_step(large, to, g.data(), first, second, most, 0.01, 0.9, 0.99, 1e-8, 0.01,
                         decoupled, 3, false, 0.7);
        },
        p, m, v, v);
}
