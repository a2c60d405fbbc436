#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/group_norm.hpp"
#include "ikebana/nn/hard_activation.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/rnn.hpp"
#include "ikebana/nn/smooth_activation.hpp"
#include "recorded.hpp"
#include "test/support/load_recorded.hpp"

using namespace ikebana;

namespace {

/// The values recorded by test/data/extremes.py.
template <class T>
std::vector<T> extremes(const std::string& name) {
  static const state_dict all = load_recorded("extremes");
  const state_dict::entry& e = all.at((sizeof(T) == 4 ? "f32/" : "f64/") + name);
  std::vector<T> x(e.bytes.size() / sizeof(T));
  std::memcpy(x.data(), e.bytes.data(), e.bytes.size());
  return x;
}

/// Equal up to rounding; NaN equals NaN, and an infinity itself. The absolute tolerance is for
/// denormal numbers, of which PyTorch's results are not exact.
template <class T>
bool near(T a, T b) {
  if (std::isnan(b) || std::isinf(b)) return std::isnan(b) ? std::isnan(a) : a == b;
  return std::abs(a - b) <=
         static_cast<T>(tolerance<T>) * std::abs(b) + 1000 * std::numeric_limits<T>::min();
}

template <class T, class M>
void check_activation_once(const std::string& name, const M& m, const std::string& where) {
  const auto x = extremes<T>(name + "/x"), y = extremes<T>(name + "/y"),
             gx = extremes<T>(name + "/gx"), among = extremes<T>(name + "/gx_among");
  // Repeated three times, so that each number is in full vectors and in the remainder.
  const std::size_t n = x.size();
  leaf_run<T, M> run(m, shape{static_cast<dim_t>(3 * n)});
  for (std::size_t i = 0; i < 3 * n; ++i) {
    run.input[static_cast<dim_t>(i)] = x[i % n];
    run.output_gradient[static_cast<dim_t>(i)] = T(1.5);
  }
  run.forward();
  for (std::size_t i = 0; i < 3 * n; ++i) {
    const T got = run.output[static_cast<dim_t>(i)];
    CHECK_MESSAGE(near(got, y[i % n]), name << where << " of " << x[i % n] << ": " << got);
  }
  run.backward(false);
  for (std::size_t i = 0; i < 3 * n; ++i) {
    const T got = run.input_gradient[static_cast<dim_t>(i)];
    CHECK_MESSAGE((near(got, gx[i % n]) || near(got, among[i % n])),
                  name << where << "'s gradient at " << x[i % n] << ": " << got);
  }
}
template <class M>
void check_activation(const std::string& name, const M& m) {
  for_each_instruction_set([&](const std::string& where) {
    check_activation_once<float>(name, m, where);
    check_activation_once<double>(name, m, where);
  });
}

template <class T>
void check_norms(const std::string& name, const std::string& where) {
  const auto x = extremes<T>(name + "/x"), y = extremes<T>(name + "/y"),
             gx = extremes<T>(name + "/gx"), grouped = extremes<T>(name + "/grouped");
  const auto check = [&](any_leaf_run<T>& run, const std::vector<T>& expected) {
    for (std::size_t i = 0; i < 16; ++i) {
      run.input[static_cast<dim_t>(i)] = x[i];
      run.output_gradient[static_cast<dim_t>(i)] = T(1);
    }
    run.initialize(seed{1});
    run.forward();
    for (std::size_t i = 0; i < 16; ++i)
      CHECK_MESSAGE(near(run.output[static_cast<dim_t>(i)], expected[i]), name << where << i);
    run.backward(false);
    for (std::size_t i = 0; i < 16; ++i)
      CHECK_MESSAGE(std::isnan(run.input_gradient[static_cast<dim_t>(i)]) == std::isnan(gx[i]),
                    name << where << i);
  };
  leaf_run<T, layer_norm<8>> rows(layer_norm<8>{}, shape{2, 8});
  check(rows, y);
  leaf_run<T, group_norm<2, 2>> groups(group_norm<2, 2>{}, shape{1, 2, 8});
  check(groups, grouped);
}

template <class T>
void check_losses(const std::string& where) {
  for (const char* name : {"minus_infinity", "least", "most"})
    for (const char* smoothing : {"0.0", "0.1"}) {
      const std::string of = "cross_entropy_" + std::string{name} + "_" + smoothing;
      const auto x = extremes<T>(of + "/x"), loss = extremes<T>(of + "/loss"),
                 gx = extremes<T>(of + "/gx");
      const std::int64_t labels[] = {2, 0};
      const tensor_view<const T, shape{1, 3, 2}> logits(x.data());
      const tensor_view<const std::int64_t, shape{1, 2}> target(labels);
      const cross_entropy f{.label_smoothing = std::stod(smoothing)};
      T g[6];
      CHECK_MESSAGE(near(f(logits, target), loss[0]), of << where);
      CHECK_MESSAGE(near(f.backward(logits, target, g), loss[0]), of << where);
      for (std::size_t i = 0; i < 6; ++i)
        CHECK_MESSAGE(std::abs(g[i] - gx[i]) <= static_cast<T>(tolerance<T>), of << where);
      // The same pixels as the rows of a batch.
      const T rows[] = {x[0], x[2], x[4], x[1], x[3], x[5]};
      const tensor_view<const T, shape{2, 3}> batch(rows);
      const tensor_view<const std::int64_t, shape{2}> of_rows(labels);
      CHECK_MESSAGE(near(f(batch, of_rows), loss[0]), of << where);
    }
}

}  // namespace

TEST_CASE("activations make of infinities, of not-a-number and of extremes what PyTorch makes") {
  check_activation("relu", relu{});
  check_activation("tanh", ikebana::tanh{});
  check_activation("sigmoid", sigmoid{});
  check_activation("gelu", gelu<>{});
  check_activation("gelu_tanh", gelu<approximate<"tanh">>{});
  check_activation("silu", silu{});
  check_activation("leaky_relu", leaky_relu{});
  check_activation("elu", elu{});
  check_activation("celu", celu{.alpha = 0.5});
  check_activation("selu", selu{});
  check_activation("softplus", softplus{});
  check_activation("log_sigmoid", log_sigmoid{});
  check_activation("hardtanh", hardtanh{});
  check_activation("relu6", relu6{});
  check_activation("hard_sigmoid", hard_sigmoid{});
  check_activation("hardswish", hardswish{});
  check_activation("mish", mish{});
  check_activation("softsign", softsign{});
}

TEST_CASE("a row whose variance overflows is not a number, as in PyTorch") {
  for_each_instruction_set([](const std::string& where) {
    for (const char* name : {"norm_far", "norm_infinity"}) {
      check_norms<float>(name, where);
      check_norms<double>(name, where);
    }
  });
}

TEST_CASE("cross entropy of logits at extremes is the same with a gradient and without") {
  for_each_instruction_set([](const std::string& where) {
    check_losses<float>(where);
    check_losses<double>(where);
  });
}

TEST_CASE("a recurrent module's relu passes the gradient of what is not a number") {
  for_each_instruction_set([](const std::string& where) {
    using module = rnn<1, 1, nonlinearity<"relu">>;
    leaf_run<float, module> run(module{}, shape_list{shape{1, 1, 1}});
    run.initialize(seed{1});
    run.input[0] = std::numeric_limits<float>::quiet_NaN();
    run.forward();
    run.output_gradient[0] = 1.5f;
    run.backward(false);
    // The gradient of the bias is that of the input of relu.
    CHECK_MESSAGE(run.gradient(2)[0] == 1.5f, where);
  });
}
