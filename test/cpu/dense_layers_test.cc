#include "ikebana/cpu/dense_layers.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;
using cpu::activation;
using ikebana::aligned_buffer;

namespace {

double applied(activation f, double x) {
  switch (f) {
    case activation::relu:
      return x > 0 ? x : 0;
    case activation::tanh:
      return std::tanh(x);
    case activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case activation::silu:
      return x / (1 + std::exp(-x));
    case activation::gelu:
      return x / 2 * std::erfc(-x / std::sqrt(2.0));
    case activation::gelu_tanh:
      return x / 2 *
             (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    default:
      return x;
  }
}

/// Layers of the given widths, with their own memory.
template <class T>
struct layers {
  std::vector<dim_t> widths;
  dim_t rows;
  std::vector<cpu::dense_layer<T>> all;
  std::vector<aligned_buffer<T>> outputs, packed, turned;
  aligned_buffer<T> parameters, seen;
  cpu::dense_chain<T> chain;

  layers(std::vector<dim_t> of, dim_t rows_, bool packs, generator& r)
      : widths{std::move(of)}, rows{rows_} {
    dim_t size = 0;
    const auto rounded = [](dim_t n) { return ikebana::round_up_to_alignment<T>(n); };
    for (std::size_t i = 1; i < widths.size(); ++i)
      size += rounded(widths[i] * widths[i - 1]) + rounded(widths[i]);
    parameters = aligned_buffer<T>(size);
    seen = aligned_buffer<T>(size);
    T* next = parameters.data();
    const auto draw = [&](dim_t n) {
      T* const at = next;
      for (dim_t i = 0; i < n; ++i) at[i] = static_cast<T>(r.number());
      next += rounded(n);
      return at;
    };
    for (std::size_t i = 1; i < widths.size(); ++i) {
      const dim_t in = widths[i - 1], out = widths[i];
      outputs.emplace_back(rounded(rows * out));
      cpu::dense_layer<T> l{.weight = draw(in * out),
                            .bias = r.below(4) == 0 ? nullptr : draw(out),
                            .y = outputs.back().data(),
                            .rows = rows,
                            .in = in,
                            .out = out,
                            .function = static_cast<activation>(r.below(7)),
                            .product = &cpu::detail::make_product<T>};
      if (packs && l.is_small()) {
        packed.emplace_back(l.packed_size());
        l.pack_to(packed.back().data());
      }
      if (packs && l.may_turn()) {
        turned.emplace_back(l.turned_size());
        l.turned = turned.back().data();
      }
      all.push_back(l);
    }
    chain = {.layers = all.data(),
             .count = static_cast<dim_t>(all.size()),
             .weights = parameters.data(),
             .seen = seen.data(),
             .size = size};
  }

  /// The largest difference of any output, for x.
  double difference(const T* x) const {
    std::vector<double> in(x, x + rows * widths[0]), out;
    double worst = 0;
    for (const cpu::dense_layer<T>& l : all) {
      out.assign(static_cast<std::size_t>(rows * l.out), 0);
      for (dim_t i = 0; i < rows * l.out; ++i) {
        double sum = l.bias == nullptr ? 0 : static_cast<double>(l.bias[i % l.out]);
        for (dim_t p = 0; p < l.in; ++p)
          sum += in[static_cast<std::size_t>(i / l.out * l.in + p)] *
                 static_cast<double>(l.weight[i % l.out * l.in + p]);
        out[static_cast<std::size_t>(i)] = applied(l.function, sum);
        const double wrong =
            std::abs(static_cast<double>(l.y[i]) - out[static_cast<std::size_t>(i)]);
        worst = std::max(worst, wrong / std::max(1.0, std::abs(out[static_cast<std::size_t>(i)])));
      }
      in = out;
    }
    return worst;
  }
};

template <class T>
constexpr double tolerance = sizeof(T) == 4 ? 3e-4 : 1e-12;

}  // namespace

TEST_CASE_TEMPLATE("layers one after another", T, float, double) {
  generator r(71);
  constexpr dim_t widths[] = {1,  2,  3,  4,  5,  7,  8,  9,  13, 15,
                              16, 17, 24, 31, 32, 33, 47, 63, 64, 65};
  for_each_set([&] {
    for (int round = 0; round < 60; ++round) {
      std::vector<dim_t> of;
      for (dim_t n = 2 + r.below(4); n > 0; --n) of.push_back(widths[r.below(20)]);
      const dim_t rows = round % 3 == 0 ? 1 + r.below(14) : 1;
      layers<T> l(of, rows, round % 4 != 0, r);
      const guarded<T> x(rows * of[0], r);
      cpu::run_dense_chain<T>(x.data(), l.chain, 0);
      CHECK(l.difference(x.data()) < tolerance<T>);
    }
  });
}

TEST_CASE_TEMPLATE("layers are packed anew where their weights have changed", T, float, double) {
  generator r(72);
  for_each_set([&] {
    layers<T> l({3, 8, 20, 1}, 1, true, r);
    const guarded<T> x(3, r);
    for (const std::uint64_t stamp : {0u, 0u, 5u, 6u, 0u}) {
      for (T& p : l.parameters.span()) p = static_cast<T>(r.number());
      cpu::run_dense_chain<T>(x.data(), l.chain, stamp);
      CHECK(l.difference(x.data()) < tolerance<T>);
      // The same again.
      cpu::run_dense_chain<T>(x.data(), l.chain, stamp);
      CHECK(l.difference(x.data()) < tolerance<T>);
    }
    // A change of the sign of zero alone is a change, too.
    std::ranges::fill(l.parameters.span(), T(0));
    cpu::run_dense_chain<T>(x.data(), l.chain, 0);
    std::ranges::fill(l.parameters.span(), -T(0));
    cpu::run_dense_chain<T>(x.data(), l.chain, 0);
    if (cpu::active_instruction_set() >= cpu::instruction_set::avx2) CHECK(std::signbit(l.seen[0]));
  });
}

TEST_CASE_TEMPLATE("weights are transposed anew where they may have changed", T, float, double) {
  generator r(74);
  for_each_set([&] {
    for (const dim_t rows : {1, 9, 33, 128}) {
      layers<T> l({65, 70, 10, 33, 66}, rows, true, r);
      CHECK(l.turned.size() == 2);
      const guarded<T> x(rows * 65, r);
      const aligned_buffer<T>& y = l.outputs.back();
      std::vector<T> last;
      for (const std::uint64_t stamp : {0u, 5u, 5u, 6u, 0u, 6u}) {
        // An emulator takes half a minute for all cases with many rows.
        if (rows == 128 && stamp != 5) continue;
        if (stamp != 5)
          for (T& p : l.parameters.span()) p = static_cast<T>(r.number());
        cpu::run_dense_chain<T>(x.data(), l.chain, stamp);
        CHECK(l.difference(x.data()) < tolerance<T>);
        last.assign(y.data(), y.data() + y.size());
        cpu::run_dense_chain<T>(x.data(), l.chain, stamp);
        CHECK(std::ranges::equal(last, y.span()));
        // And with weights that may be written at any time, of which nothing is kept.
        cpu::run_dense_chain<T>(x.data(), l.chain, 0);
        CHECK(l.difference(x.data()) < tolerance<T>);
        CHECK_FALSE(l.all[0].is_turned());
      }
    }
  });
}

TEST_CASE_TEMPLATE("a row has the same bits alone and in any batch", T, float, double) {
  for_each_set([&] {
    std::uint64_t key = 75;
    for (const std::vector<dim_t>& widths : {std::vector<dim_t>{3, 5, 1},
                                             {1, 1, 1},
                                             {8, 1},
                                             {70, 1},
                                             {7, 16, 16, 2},
                                             {63, 64, 33, 4},
                                             {30, 17, 9, 1, 5},
                                             {300, 70, 64, 10},
                                             {40, 200, 31},
                                             {517, 20, 520, 7}})
      for (const bool packs : {true, false}) {
        ++key;
        constexpr dim_t most = 20;
        generator r(key);
        layers<T> all(widths, most, packs, r);
        const guarded<T> x(most * widths[0], r);
        cpu::run_dense_chain<T>(x.data(), all.chain, 1);
        CHECK(all.difference(x.data()) < tolerance<T>);
        for (dim_t rows = 1; rows < most; ++rows) {
          generator again(key);
          layers<T> some(widths, rows, packs, again);
          const dim_t from = rows % 2 == 0 ? 0 : most - rows, out = widths.back();
          cpu::run_dense_chain<T>(x.data() + from * widths[0], some.chain, 1);
          INFO(rows << " rows of " << widths[0] << ", " << widths[1] << ", packed: " << packs);
          CHECK(std::memcmp(some.outputs.back().data(), all.outputs.back().data() + from * out,
                            static_cast<std::size_t>(rows * out) * sizeof(T)) == 0);
        }
      }
  });
}

TEST_CASE_TEMPLATE("what is not a number goes where it is used and nowhere else", T, float,
                   double) {
  generator r(73);
  for_each_set([&] {
    layers<T> l({5, 7, 6}, 1, true, r);
    for (auto& layer : l.all) layer.function = activation::tanh;
    const cpu::dense_layer<T>& first = l.all[0];
    T* const weight = l.parameters.data();
    CHECK(weight == first.weight);
    // One weight of the first layer.
    weight[2 * 5 + 1] = std::numeric_limits<T>::quiet_NaN();
    guarded<T> x(5, r);
    cpu::run_dense_chain<T>(x.data(), l.chain, 0);
    for (dim_t j = 0; j < 7; ++j) CHECK(std::isnan(first.y[j]) == (j == 2));
    for (dim_t j = 0; j < 6; ++j) CHECK(std::isnan(l.all[1].y[j]));
    // tanh makes it finite.
    weight[2 * 5 + 1] = std::numeric_limits<T>::infinity();
    cpu::run_dense_chain<T>(x.data(), l.chain, 0);
    CHECK(std::abs(first.y[2]) == 1);
    for (dim_t j = 0; j < 6; ++j) CHECK(std::isfinite(l.all[1].y[j]));
    // Nor do elements beyond the last of a vector matter.
    for (const dim_t n : {7, 8}) {
      layers<T> few({5, n, 1}, 1, true, r);
      for (auto& layer : few.all) layer.function = activation::tanh;
      x[0] = std::numeric_limits<T>::infinity();
      cpu::run_dense_chain<T>(x.data(), few.chain, 0);
      for (dim_t j = 0; j < n; ++j) CHECK(std::abs(few.all[0].y[j]) == 1);
      CHECK(std::isfinite(few.all[1].y[0]));
    }
  });
}
