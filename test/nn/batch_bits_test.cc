#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "ikebana/cpu/softmax.hpp"
#include "ikebana/cpu/threads.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/adaptive_pool.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/bilinear.hpp"
#include "ikebana/nn/group_norm.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/nn/hard_activation.hpp"
#include "ikebana/nn/instance_norm.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/lstm.hpp"
#include "ikebana/nn/multihead_attention.hpp"
#include "ikebana/nn/pool.hpp"
#include "ikebana/nn/rms_norm.hpp"
#include "ikebana/nn/rnn.hpp"
#include "ikebana/nn/rnn_cell.hpp"
#include "ikebana/nn/smooth_activation.hpp"
#include "ikebana/nn/softmax.hpp"
#include "ikebana/nn/weight_norm.hpp"
#include "recorded.hpp"

using namespace ikebana;

namespace {

/// Fills an array with numbers in [-1, 1) that depend only on `key`. The library's generator takes
/// most of a test's time where it is not optimised.
template <class T>
void fill_numbers(T* x, dim_t n, std::uint64_t key) {
  for (dim_t i = 0; i < n; ++i) {
    key = key * 6364136223846793005u + 1442695040888963407u;
    x[i] = static_cast<T>(static_cast<std::int64_t>(key)) * T(0x1p-63);
  }
}

/// Sets parameters and buffers to values that are not neutral and do not depend on the batch.
template <class T>
void disturb(any_leaf_run<T>& run) {
  const auto fill = [](std::uint64_t key, T* x, dim_t n) {
    fill_numbers(x, n, key);
    for (dim_t i = 0; i < n; ++i) x[i] = T(0.9) + T(0.7) * x[i];
  };
  for (std::size_t i = 0; i < run.parameter_specs.size(); ++i)
    fill(i + 10, run.parameter(i), run.parameter_specs[i].extents.numel());
  for (std::size_t i = 0; i < run.buffer_specs.size(); ++i)
    if (run.buffer_specs[i].follows_model)
      fill(i + 20, reinterpret_cast<T*>(run.buffer(i)), run.buffer_specs[i].extents.numel());
}

template <class T>
void run_on(any_leaf_run<T>& run, const T* x, const T* dy, bool training) {
  disturb(run);
  std::memcpy(run.input.data(), x, run.input.span().size_bytes());
  run.forward(training);
  std::memcpy(run.output_gradient.data(), dy, run.output_gradient.span().size_bytes());
  run.backward(false);
}

/// Compares m on 9 samples with m on parts of them.
template <class T, class M>
void check_parts(const M& m, const shape& sample, bool training, const std::string& where) {
  constexpr dim_t batch = 9;
  shape in{batch};
  for (dim_t d : sample) in.push_back(d);
  const dim_t n = sample.numel();
  leaf_run<T, M> all(m, in);
  const dim_t n_out = all.output.size() / batch;
  std::vector<T> x(static_cast<std::size_t>(batch * n)), dy(all.output.span().size());
  fill_numbers(x.data(), batch * n, 2);
  fill_numbers(dy.data(), batch * n_out, 3);
  run_on<T>(all, x.data(), dy.data(), training);
  for (dim_t part : {1, 2, 3, 5})
    for (dim_t from : {dim_t{0}, dim_t{batch - part}}) {
      leaf_run<T, M> some(m, in.with(0, part));
      run_on<T>(some, x.data() + from * n, dy.data() + from * n_out, training);
      const auto same = [&](const aligned_buffer<T>& a, const aligned_buffer<T>& b, dim_t each) {
        return std::memcmp(a.data(), b.data() + from * each, a.span().size_bytes()) == 0;
      };
      const std::string what =
          std::string{M::kind} + " of " + std::to_string(n) + " by " + std::to_string(part) + where;
      CHECK_MESSAGE(same(some.output, all.output, n_out), what);
      CHECK_MESSAGE(same(some.input_gradient, all.input_gradient, n), "the gradient of " << what);
    }
}
template <class M>
void check_samples(const M& m, const shape& sample, bool training = true) {
  for_each_instruction_set([&](const std::string& where) {
    check_parts<float>(m, sample, training, where);
    check_parts<double>(m, sample, training, where);
  });
}

}  // namespace

// Not tested: convolutions, which choose their algorithm by the batch.
TEST_CASE("a sample has the same bits alone and in any batch") {
  for (dim_t n : {7, 37}) {
    check_samples(relu{}, {n});
    check_samples(gelu<>{}, {n});
    check_samples(sigmoid{}, {n});
    check_samples(ikebana::tanh{}, {n});
    check_samples(silu{}, {n});
    check_samples(mish{}, {n});
    check_samples(softplus{}, {n});
    check_samples(hardswish{}, {n});
  }
  for (dim_t n : {1, 3, 8, 17, 40, 70, 300}) {
    check_samples(softmax<dim<-1>>{}, {n});
    check_samples(log_softmax<dim<1>>{}, {n, 3});
    check_samples(layer_norm<dynamic>{}, {n});
    check_samples(rms_norm<dynamic>{}, {n});
    check_samples(group_norm<2, 6>{}, {6, n});
    check_samples(group_norm<4, 32>{}, {32, n});
    check_samples(instance_norm1d<3>{}, {3, n + 1});
    check_samples(instance_norm1d<3, affine<true>>{}, {3, n + 1});
    check_samples(batch_norm1d<19>{}, {19, n}, false);
  }
}

// Sizes for which sums of gates are products by packed weights, or of more than 8 rows.
TEST_CASE("a sequence has the same bits alone and in any batch") {
  for (dim_t steps : {1, 2, 5}) {
    check_samples(rnn<9, 16, batch_first<true>>{}, {steps, 9});
    check_samples(lstm<17, 9, batch_first<true>>{}, {steps, 17});
    check_samples(lstm<16, 32, batch_first<true>, bidirectional<true>>{}, {steps, 16});
    check_samples(gru<32, 17, batch_first<true>>{}, {steps, 32});
  }
  check_samples(lstm<40, 20, batch_first<true>, num_layers<2>>{}, {9, 40});
  check_samples(gru<33, 40, batch_first<true>>{}, {11, 33});
}

namespace {

/// Compares m on 20 samples of each of its inputs with m on each number of them, which has the same
/// parameters: drawing them anew takes longer than all else.
template <class T, class M>
void check_batches(const M& m, const shape_list& samples, const std::string& where) {
  constexpr dim_t batch = 20;
  const auto of = [&](dim_t rows) {
    shape_list in;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      shape s{rows};
      for (dim_t d : samples[i]) s.push_back(d);
      in.push_back(s);
    }
    return in;
  };
  const auto run_part = [&](any_leaf_run<T>& run, dim_t from) {
    const auto part = [&](aligned_buffer<T>& to, const shape& whole, std::uint64_t key) {
      std::vector<T> all(static_cast<std::size_t>(batch * whole.numel(1, whole.rank())));
      fill_numbers(all.data(), static_cast<dim_t>(all.size()), key);
      const dim_t each = whole.numel(1, whole.rank());
      std::copy_n(all.data() + from * each, whole.numel(), to.data());
    };
    for (std::size_t i = 0; i < samples.size(); ++i) part(run.inputs[i], run.ins[i], 2 + i);
    run.forward();
    part(run.output_gradient, run.out, 9);
    run.backward(false);
  };
  leaf_run<T, M> all(m, of(batch));
  disturb(all);
  const std::vector<std::byte> buffers(all.buffers.span().begin(), all.buffers.span().end());
  run_part(all, 0);
  for (dim_t rows = 1; rows < batch; ++rows) {
    const dim_t from = rows % 2 == 0 ? 0 : batch - rows;
    leaf_run<T, M> some(m, of(rows));
    std::ranges::copy(all.parameters.span(), some.parameters.data());
    std::ranges::copy(buffers, some.buffers.data());
    run_part(some, from);
    const auto same = [&](const aligned_buffer<T>& a, const aligned_buffer<T>& b, const shape& s) {
      return std::memcmp(a.data(), b.data() + from * s.numel(1, s.rank()),
                         static_cast<std::size_t>(s.numel()) * sizeof(T)) == 0;
    };
    INFO(std::string{M::kind} << ", " << rows << " samples of " << samples[0].numel() << where);
    CHECK(same(some.output, all.output, some.out));
    for (std::size_t i = 0; i < samples.size(); ++i)
      CHECK(same(some.input_gradients[i], all.input_gradients[i], some.ins[i]));
  }
}
template <class M>
void check_product(const M& m, const shape_list& samples) {
  for_each_instruction_set([&](const std::string& where) {
    check_batches<float>(m, samples, where);
    check_batches<double>(m, samples, where);
  });
}

}  // namespace

// Sums of more and of fewer than 16 vectors of each set, and few columns.
TEST_CASE("a sample has the same bits in a product of any batch") {
  check_product(linear<7, 3>{}, shape_list{shape{7}});
  check_product(linear<40, 70>{}, shape_list{shape{40}});
  check_product(linear<70, 1, bias<false>>{}, shape_list{shape{70}});
  check_product(linear<300, 5>{}, shape_list{shape{300}});
  check_product(linear<300, 45>{}, shape_list{shape{300}});
  check_product(linear<9, 280>{}, shape_list{shape{3, 9}});
  check_product(weight_norm<linear<290, 44>>{}, shape_list{shape{290}});
  check_product(bilinear<37, 270, 3>{}, shape_list{shape{37}, shape{270}});
  check_product(multihead_attention<34, 2, batch_first<true>>{}, shape_list{shape{3, 34}});
  check_product(multihead_attention<260, 4, batch_first<true>>{}, shape_list{shape{1, 260}});
  check_product(rnn_cell<260, 20>{}, shape_list{shape{260}});
  check_product(lstm_cell<40, 33>{}, shape_list{shape{40}});
}

TEST_CASE("a sample is pooled to the same bits alone and in any batch") {
  for (dim_t n : {2, 3, 4, 6, 13, 17, 35}) {
    const shape planes{7, n, n};
    check_samples(avg_pool2d<kernel<2>>{}, planes);
    check_samples(avg_pool2d<kernel<2>, stride<1>>{}, planes);
    check_samples(avg_pool2d<kernel<3>, stride<1>, padding<1>>{}, planes);
    check_samples(avg_pool2d<kernel<3>, stride<2>, padding<1>, count_include_pad<false>>{}, planes);
    check_samples(avg_pool2d<kernel<5>, stride<2>, padding<2>, ceil_mode<true>>{}, planes);
    check_samples(avg_pool2d<kernel<3>, stride<3>, padding<1>>{}, planes);
    check_samples(adaptive_avg_pool2d<output_size<1>>{}, planes);
    check_samples(adaptive_avg_pool2d<output_size<2>>{}, planes);
    check_samples(max_pool2d<kernel<2>>{}, planes);
    check_samples(max_pool2d<kernel<3>, stride<2>, padding<1>>{}, planes);
    check_samples(max_pool2d<kernel<5>, stride<1>, padding<2>>{}, planes);
    check_samples(adaptive_max_pool2d<output_size<2>>{}, planes);
  }
  check_samples(avg_pool1d<kernel<3>, stride<2>>{}, {7, 45});
  check_samples(avg_pool3d<kernel<2>>{}, {7, 4, 5, 6});
}

TEST_CASE("a sample has the same bits in a batch that several threads share") {
  const int before = num_threads();
  set_num_threads(3);
  check_parts<float>(softmax<dim<-1>>{}, {9000}, true, "");
  check_parts<float>(layer_norm<dynamic>{}, {9000}, true, "");
  check_parts<float>(gelu<>{}, {9000}, true, "");
  check_parts<float>(group_norm<2, 4>{}, {4, 4000}, true, "");
  check_parts<float>(group_norm<2, 256>{}, {256, 36}, true, "");
  check_parts<float>(instance_norm1d<4>{}, {4, 4000}, true, "");
  check_parts<float>(batch_norm1d<4>{}, {4, 4000}, false, "");
  check_parts<float>(avg_pool2d<kernel<3>, stride<2>>{}, {30, 20, 20}, true, "");
  check_parts<float>(avg_pool2d<kernel<5>, stride<1>, padding<2>>{}, {30, 20, 20}, true, "");
  set_num_threads(before);
}

TEST_CASE_TEMPLATE("the gradient of a row by cross entropy has the same bits in any batch", T,
                   float, double) {
  for_each_instruction_set([](const std::string& where) {
    for (dim_t classes : {2, 10, 17, 100}) {
      constexpr dim_t rows = 9;
      std::vector<T> x(static_cast<std::size_t>(rows * classes)), all = x, one = x;
      fill_numbers(x.data(), rows * classes, 4);
      std::vector<std::int64_t> labels(rows), counted(1);
      for (dim_t r = 0; r < rows; ++r) labels[static_cast<std::size_t>(r)] = r * 7 % classes;
      T sum{};
      const auto run = [&](dim_t first, dim_t n, T* to) {
        cpu::cross_entropy<T>(n, classes, x.data() + first * classes, labels.data() + first, T(0.1),
                              -100, &sum, counted.data(), to + first * classes, T(0.5));
      };
      run(0, rows, all.data());
      for (dim_t r = 0; r < rows; ++r) run(r, 1, one.data());
      CHECK_MESSAGE(std::memcmp(one.data(), all.data(), all.size() * sizeof(T)) == 0,
                    classes << where);
    }
  });
}
