#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "ikebana/nn/bilinear.hpp"
#include "ikebana/nn/conv_transpose.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/nn/lstm.hpp"
#include "ikebana/nn/multihead_attention.hpp"
#include "ikebana/nn/positional_encoding.hpp"
#include "ikebana/nn/rnn.hpp"
#include "ikebana/nn/rnn_cell.hpp"
#include "leaf_run.hpp"

using namespace ikebana;

namespace {

struct moments {
  double count = 0, mean = 0, square = 0, fourth = 0, most = 0;
};
moments moments_of(const float* x, dim_t n) {
  moments m;
  m.count = static_cast<double>(n);
  for (dim_t i = 0; i < n; ++i) {
    const auto v = static_cast<double>(x[i]);
    m.mean += v / m.count;
    m.square += v * v / m.count;
    m.fourth += v * v * v * v / m.count;
    m.most = std::max(m.most, std::abs(v));
  }
  return m;
}

/// Checks a mean of 0, this deviation, and the kurtosis of uniform (1.8) or normal (3) numbers,
/// within six standard errors.
void check_drawn(const moments& m, double deviation, double kurtosis) {
  REQUIRE(m.count >= 250);
  const double variance = deviation * deviation;
  CHECK(std::abs(m.mean) < 6 * deviation / std::sqrt(m.count));
  CHECK(std::abs(m.square / variance - 1) < 6 * std::sqrt((kurtosis - 1) / m.count));
  CHECK(std::abs(m.fourth / (m.square * m.square) - kurtosis) < (kurtosis > 2 ? 1.1 : 0.5));
}

/// Calls check(name, moments) for each parameter of m.
template <class M, class Check>
void for_each_parameter(const M& m, const shape_list& in, const Check& check) {
  leaf_run<float, M> run(m, in);
  run.initialize(seed{11});
  for (std::size_t i = 0; i < run.parameter_specs.size(); ++i) {
    const parameter_spec& spec = run.parameter_specs[i];
    INFO(M::kind << "." << spec.name);
    check(std::string{spec.name}, moments_of(run.parameter(i), spec.extents.numel()));
  }
}

template <class M>
void check_uniform(const M& m, const shape_list& in, double bound) {
  for_each_parameter(m, in, [&](const std::string&, const moments& of) {
    CHECK(of.most <= bound);
    check_drawn(of, bound / std::sqrt(3.0), 1.8);
  });
}

}  // namespace

TEST_CASE("recurrent modules draw all parameters from within 1 / sqrt(hidden_size)") {
  const double bound = 1 / std::sqrt(300.0);
  check_uniform(rnn<7, 300>{}, {shape{2, 1, 7}}, bound);
  check_uniform(lstm<7, 300, num_layers<2>>{}, {shape{2, 1, 7}}, bound);
  check_uniform(gru<7, 300>{}, {shape{2, 1, 7}}, bound);
  check_uniform(lstm_cell<7, 300>{}, {shape{1, 7}}, bound);
}

TEST_CASE("transposed convolutions and bilinear draw from within 1 / sqrt(fan_in)") {
  // The fan-in of PyTorch's weight (in, out / groups, kernel) uses the second extent.
  check_uniform(conv_transpose2d<20, 300, kernel<3, 2>, groups<2>>{}, {shape{1, 20, 4, 4}},
                1 / std::sqrt(150.0 * 6));
  check_uniform(bilinear<9, 4, 300>{}, {shape{2, 9}, shape{2, 4}}, 1 / std::sqrt(9.0));
}

TEST_CASE("attention draws its input projections by Xavier, and its biases are 0") {
  for_each_parameter(multihead_attention<36, 3>{}, {shape{2, 1, 36}},
                     [](const std::string& name, const moments& of) {
                       if (name.ends_with("bias")) {
                         CHECK(of.most == 0);
                         return;
                       }
                       const double bound = name == "in_proj_weight" ? std::sqrt(6.0 / (36 + 108))
                                                                     : 1 / std::sqrt(36.0);
                       CHECK(of.most <= bound);
                       check_drawn(of, bound / std::sqrt(3.0), 1.8);
                     });
}

TEST_CASE("embeddings are normal numbers, their padding zeros") {
  for_each_parameter(embedding<100, 40>{}, {shape{3}},
                     [](const std::string&, const moments& of) { check_drawn(of, 1, 3); });
  for_each_parameter(learned_positions<100, 40>{}, {shape{3, 1, 40}},
                     [](const std::string&, const moments& of) { check_drawn(of, 0.02, 3); });
  leaf_run<float, embedding<100, 40, padding_idx<7>>> run(embedding<100, 40, padding_idx<7>>{},
                                                          shape_list{shape{3}});
  run.initialize(seed{11});
  CHECK(moments_of(run.parameter(0) + 7 * 40, 40).most == 0);
  CHECK(moments_of(run.parameter(0) + 8 * 40, 40).most > 0);
  CHECK(moments_of(run.parameter(0) + 6 * 40, 40).most > 0);
}
