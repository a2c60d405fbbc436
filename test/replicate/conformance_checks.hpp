#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/parallel.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/mesh.hpp"
#include "ikebana/replicate/replicate.hpp"

// PyTorch's tests that are not elsewhere, under their names; the optimizer steps before gradients
// are zeroed. All ranks call each function.
namespace conformance_checks {

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

inline constexpr ike::dim_t all_rows = 12;  // Divisible by 1, 2, 3 and 4 ranks.

/// This rank's rows of a global batch.
template <class T, shape S>
ike::tensor<T, S> slice(const ike::tensor<T, S>& whole, int rank, int ranks) {
  const ike::dim_t n = all_rows / ranks, columns = whole.extents()[1];
  ike::tensor<T, S> out(shape{n, columns});
  std::copy_n(whole.data() + rank * n * columns, n * columns, out.data());
  return out;
}
template <class T, ike::dim_t Columns>
ike::tensor<T, shape{dynamic, Columns}> whole(std::uint64_t seed) {
  return ike::uniform<T, shape{dynamic, Columns}>(ike::seed{seed}, all_rows);
}

/// Whether two arrays agree to `tolerance` of the largest element.
template <class A, class B>
bool are_close(const A& a, const B& b, double tolerance) {
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(b[i])));
    worst = std::max(worst, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return a.size() == b.size() && largest > 0 && worst <= tolerance * largest;
}
template <class T>
inline constexpr double close = sizeof(T) == 4 ? 2e-6 : 1e-14;

template <class T, class Group>
bool is_same_everywhere(std::span<const T> mine, Group& group) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(mine, std::span<T>{all});
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] != all[i % mine.size()]) return false;
  return true;
}

/// Two steps of SGD on this rank's rows, and on all of them by one model: the same gradients after
/// each step, and the same parameters.
template <class T, class Policy, class Group, class Module>
void compare_with_local(Group& group, const Module& module) {
  const auto made = ike::initialize<T, shape{dynamic, 3}>(module, ike::seed{1});
  auto model = ike::replicate<Policy>(made.clone(), group);
  auto local = made.clone();
  ike::sgd optimizer{model, {.lr = 0.1}}, local_optimizer{local, {.lr = 0.1}};
  for (std::uint64_t step = 0; step < 2; ++step) {
    const auto x = whole<T, 3>(step);
    const auto y = whole<T, 5>(100 + step);
    model.loss_backward(slice(x, group.rank(), group.size()), slice(y, group.rank(), group.size()),
                        ike::mse_loss{});
    local.loss_backward(x, y, ike::mse_loss{});
    CHECK(are_close(model.gradients(), local.gradients(), close<T>));
    optimizer.step();
    local_optimizer.step();
    CHECK(are_close(model.parameters(), local.parameters(), close<T>));
    model.zero_grad();
    local.zero_grad();
  }
}

/// test_replicate.py: replicate_single_module.
template <class T, class Group>
void single_module(Group& group) {
  compare_with_local<T, ike::replicate_policy<>>(group, ike::lazy_linear<5>{});
}

/// test_replicate.py: replicate_with_kwargs, with two named inputs, and one bucket per parameter.
template <class T, class Group>
void with_kwargs(Group& group) {
  constexpr auto net = ike::graph<"source", "other">([](auto source, auto other) {
    return "out"_m(ike::lazy_linear<5>{}, source + "in"_m(ike::lazy_linear<3>{}, other));
  });
  const auto made = ike::initialize<T, shape{dynamic, 3}, shape{dynamic, 2}>(net, ike::seed{1});
  auto model = ike::replicate<ike::replicate_policy<ike::bucket_cap<1>>>(made.clone(), group);
  auto local = made.clone();
  CHECK(model.bucket_plan().size() == 4);
  ike::sgd optimizer{model, {.lr = 0.1}}, local_optimizer{local, {.lr = 0.1}};
  const int rank = group.rank(), ranks = group.size();
  for (std::uint64_t step = 0; step < 2; ++step) {
    const auto a = whole<T, 3>(step);
    const auto b = whole<T, 2>(50 + step);
    const auto y = whole<T, 5>(100 + step);
    const auto mine = slice(a, rank, ranks);
    const auto others = slice(b, rank, ranks);
    model.train_step(ike::inputs("other"_arg = others, "source"_arg = mine), slice(y, rank, ranks),
                     ike::mse_loss{}, optimizer);
    local.train_step(ike::inputs(a, b), y, ike::mse_loss{}, local_optimizer);
    CHECK(are_close(model.gradients(), local.gradients(), close<T>));
    CHECK(are_close(model.parameters(), local.parameters(), close<T>));
    // Without a loss: forward and backward separately.
    const ike::tensor by_name(model("other"_arg = others, "source"_arg = mine));
    const ike::tensor by_place(model(mine, others));
    CHECK(std::ranges::equal(by_name.span(), by_place.span()));
  }
}

/// y = W2 tanh(W1 x + b1) + b2 with the mean squared error and Adam, written by hand without
/// Ikebana.
class written_out {
 public:
  static constexpr std::size_t in = 3, hidden = 17, out = 16;
  struct array {
    std::vector<double> value, gradient, m, v;
    explicit array(std::size_t n) : value(n), gradient(n), m(n), v(n) {}
  };
  array w1{hidden * in}, b1{hidden}, w2{out * hidden}, b2{out};

  /// The gradients of the mean over all rows.
  void backward(const std::vector<double>& x, const std::vector<double>& target) {
    for (array* a : {&w1, &b1, &w2, &b2}) std::ranges::fill(a->gradient, 0);
    const std::size_t rows = x.size() / in;
    for (std::size_t r = 0; r < rows; ++r) {
      std::vector<double> h(hidden), dh(hidden);
      for (std::size_t j = 0; j < hidden; ++j) {
        double sum = b1.value[j];
        for (std::size_t i = 0; i < in; ++i) sum += w1.value[j * in + i] * x[r * in + i];
        h[j] = std::tanh(sum);
      }
      for (std::size_t k = 0; k < out; ++k) {
        double y = b2.value[k];
        for (std::size_t j = 0; j < hidden; ++j) y += w2.value[k * hidden + j] * h[j];
        const double d = 2 * (y - target[r * out + k]) / static_cast<double>(rows * out);
        b2.gradient[k] += d;
        for (std::size_t j = 0; j < hidden; ++j) {
          w2.gradient[k * hidden + j] += d * h[j];
          dh[j] += d * w2.value[k * hidden + j];
        }
      }
      for (std::size_t j = 0; j < hidden; ++j) {
        const double d = dh[j] * (1 - h[j] * h[j]);
        b1.gradient[j] += d;
        for (std::size_t i = 0; i < in; ++i) w1.gradient[j * in + i] += d * x[r * in + i];
      }
    }
  }
  void adam_step(double lr) {
    ++steps_;
    for (array* a : {&w1, &b1, &w2, &b2})
      for (std::size_t i = 0; i < a->value.size(); ++i) {
        const double g = a->gradient[i];
        a->m[i] = 0.9 * a->m[i] + 0.1 * g;
        a->v[i] = 0.999 * a->v[i] + 0.001 * g * g;
        const double m = a->m[i] / (1 - std::pow(0.9, steps_));
        const double v = a->v[i] / (1 - std::pow(0.999, steps_));
        a->value[i] -= lr * m / (std::sqrt(v) + 1e-8);
      }
  }

 private:
  int steps_ = 0;
};

/// test_replicate_with_fsdp.py: train_replicate_fsdp, and test_replicate_training.py:
/// train_parity_single_group. Ten steps of Adam with extents that nothing divides and ranks that
/// are late in turn; gradients are the means, which PyTorch's are not.
template <class T, class Group>
void train_parity(Group& group) {
  constexpr ike::dim_t in = written_out::in, hidden = written_out::hidden, out = written_out::out;
  constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<hidden>{}, ike::tanh{},
                                       "fc2"_m = ike::lazy_linear<out>{});
  auto model = ike::replicate<ike::replicate_policy<ike::bucket_cap<256>>>(
      ike::initialize<T, shape{dynamic, in}>(net, ike::seed{1}), group);
  ike::adam optimizer{model, {.lr = 1e-2}};
  written_out reference;
  const auto copy_from = [](auto view, std::vector<double>& to) {
    std::copy_n(view.data(), to.size(), to.begin());
  };
  copy_from(model["fc1.weight"_s], reference.w1.value);
  copy_from(model["fc1.bias"_s], reference.b1.value);
  copy_from(model["fc2.weight"_s], reference.w2.value);
  copy_from(model["fc2.bias"_s], reference.b2.value);
  const double tolerance = sizeof(T) == 4 ? 1e-4 : 1e-12;
  const auto same = [tolerance](auto view, const std::vector<double>& expected) {
    return are_close(std::span{view.data(), expected.size()}, expected, tolerance);
  };
  for (int step = 0; step < 10; ++step) {
    const auto x = whole<T, in>(static_cast<std::uint64_t>(step));
    const auto y = whole<T, out>(static_cast<std::uint64_t>(100 + step));
    if (step % group.size() == group.rank())
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    model.train_step(slice(x, group.rank(), group.size()), slice(y, group.rank(), group.size()),
                     ike::mse_loss{}, optimizer);
    reference.backward({x.span().begin(), x.span().end()}, {y.span().begin(), y.span().end()});
    CHECK(same(model.gradient("fc1.weight"_s), reference.w1.gradient));
    CHECK(same(model.gradient("fc1.bias"_s), reference.b1.gradient));
    CHECK(same(model.gradient("fc2.weight"_s), reference.w2.gradient));
    CHECK(same(model.gradient("fc2.bias"_s), reference.b2.gradient));
    reference.adam_step(1e-2);
  }
  CHECK(same(model["fc1.weight"_s], reference.w1.value));
  CHECK(same(model["fc2.weight"_s], reference.w2.value));
  CHECK(is_same_everywhere<T>(std::as_const(model).parameters(), group));
}

inline constexpr auto normed =
    ike::sequential("fc1"_m = ike::lazy_linear<7>{}, "norm"_m = ike::lazy_batch_norm1d<>{},
                    "fc2"_m = ike::lazy_linear<5>{});

/// test_replicate_with_compiler.py: compile_cpu, compile_cpu_no_sync and compile_backward_only. A
/// static batch changes no bit of gradients or parameters.
template <class T, class Group>
void compiled(Group& group, bool no_sync) {
  using policy = ike::replicate_policy<ike::bucket_cap<64>>;
  auto known = ike::replicate<policy>(ike::initialize<T, shape{4, 3}>(normed, ike::seed{1}), group);
  auto unknown =
      ike::replicate<policy>(ike::initialize<T, shape{dynamic, 3}>(normed, ike::seed{1}), group);
  ike::sgd known_optimizer{known, {.lr = 0.1}}, unknown_optimizer{unknown, {.lr = 0.1}};
  for (std::uint64_t step = 0; step < 2; ++step) {
    const auto x = ike::uniform<T, shape{4, 3}>(
        ike::seed{10 * step + static_cast<std::uint64_t>(group.rank())});
    const auto gradient = ike::uniform<T, shape{4, 5}>(ike::seed{100 + step});
    const auto backward = [&](auto& model) {
      model(x);
      model.backward(gradient);
    };
    if (no_sync && step == 0) {
      const auto guard = known.no_sync();
      const auto other_guard = unknown.no_sync();
      backward(known);
      backward(unknown);
    } else {
      backward(known);
      backward(unknown);
    }
    CHECK(std::ranges::equal(known.gradients(), unknown.gradients()));
    if (!no_sync || step == 1)
      CHECK(is_same_everywhere<T>(std::as_const(known).gradients(), group));
    if (no_sync) continue;
    known_optimizer.step();
    unknown_optimizer.step();
    CHECK(std::ranges::equal(known.parameters(), unknown.parameters()));
    known.zero_grad();
    unknown.zero_grad();
  }
}

/// test_replicate_with_compiler.py: compile_bf16 and compile_fp16, with gradients sent in half
/// precision. A static batch gives the same bits as a dynamic one, and each gradient is the rounded
/// mean of the ranks' rounded gradients.
template <class Half, class Group>
void compiled_in_half_precision(Group& group) {
  using policy =
      ike::replicate_policy<ike::bucket_cap<64>, ike::comm_hook<ike::compress_hook<Half>>>;
  using exact_policy = ike::replicate_policy<ike::comm_hook<ike::noop_hook>>;
  const auto made = ike::initialize<float, shape{4, 3}>(normed, ike::seed{1});
  auto known = ike::replicate<policy>(made.clone(), group);
  auto own = ike::replicate<exact_policy>(made.clone(), group);
  auto unknown = ike::replicate<policy>(
      ike::initialize<float, shape{dynamic, 3}>(normed, ike::seed{1}), group);
  ike::sgd known_optimizer{known, {.lr = 0.1}}, unknown_optimizer{unknown, {.lr = 0.1}};
  const auto ranks = static_cast<std::size_t>(group.size());
  for (std::uint64_t step = 0; step < 2; ++step) {
    const auto x = ike::uniform<float, shape{4, 3}>(
        ike::seed{10 * step + static_cast<std::uint64_t>(group.rank())});
    const auto gradient = ike::uniform<float, shape{4, 5}>(ike::seed{100 + step});
    std::ranges::copy(known.parameters(), own.parameters().begin());
    const auto backward = [&](auto& model) {
      model.zero_grad();
      model(x);
      model.backward(gradient);
    };
    backward(known);
    backward(unknown);
    backward(own);
    CHECK(std::ranges::equal(known.gradients(), unknown.gradients()));

    const std::size_t n = own.gradients().size();
    std::vector<float> all(n * ranks);
    group.all_gather(std::span<const float>(std::as_const(own).gradients()), std::span<float>(all));
    std::vector<float> expected(n), exact(n);
    for (std::size_t i = 0; i < n; ++i) {
      float sum = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        sum += static_cast<float>(Half(all[r * n + i]));
        exact[i] += all[r * n + i] / static_cast<float>(ranks);
      }
      expected[i] = static_cast<float>(Half(sum * (1.0f / static_cast<float>(ranks))));
    }
    CHECK(std::ranges::equal(known.gradients(), expected));
    CHECK_FALSE(std::ranges::equal(known.gradients(), exact));
    known_optimizer.step();
    unknown_optimizer.step();
    CHECK(std::ranges::equal(known.parameters(), unknown.parameters()));
    CHECK(is_same_everywhere<float>(std::as_const(known).parameters(), group));
  }
}

/// test_replicate_training.py: to_float64_after_init. The state of a float replica continues in
/// double, in which everything is double.
template <class Group>
void to_float64(Group& group) {
  using policy = ike::replicate_policy<ike::groups_by_module<"fc1", "fc2">>;
  auto narrow = ike::replicate<policy>(
      ike::initialize<float, shape{dynamic, 3}>(normed, ike::seed{1}), group);
  auto model = ike::replicate<policy>(
      ike::initialize<double, shape{dynamic, 3}>(normed, ike::seed{2}), group);
  ike::load_state_dict(model, ike::get_state_dict(narrow));
  for (const auto& entry : ike::get_state_dict(model))
    CHECK((entry.type == ike::dtype::float64 || entry.name == "norm.num_batches_tracked"));
  CHECK(std::ranges::equal(model["fc1.weight"_s].span(), narrow["fc1.weight"_s].span()));
  CHECK(std::ranges::equal(model["norm.bias"_s].span(), narrow["norm.bias"_s].span()));
  auto local = ike::initialize<double, shape{dynamic, 3}>(normed, ike::seed{3});
  ike::load_state_dict(local, ike::get_state_dict(model));

  ike::sgd optimizer{model, {.lr = 0.1, .momentum = 0.9}};
  ike::sgd local_optimizer{local, {.lr = 0.1, .momentum = 0.9}};
  for (std::uint64_t step = 0; step < 4; ++step) {
    const auto x = slice(whole<double, 3>(step), group.rank(), group.size());
    const auto y = slice(whole<double, 5>(100 + step), group.rank(), group.size());
    model.train_step(x, y, ike::mse_loss{}, optimizer);
    local.zero_grad();
    local.loss_backward(x, y, ike::mse_loss{});
    group.all_reduce(local.gradients(), ike::reduce_op::avg);
    CHECK(are_close(model.gradients(), local.gradients(), 1e-13));
    local_optimizer.step();
  }
  CHECK(are_close(model.parameters(), local.parameters(), 1e-13));
}

/// test_replicate_training.py: param_registration_after_forward and _after_backward. Type and
/// address of parameters and gradients do not change from the first forward on; a moved replica
/// keeps them, too.
template <class T, class Policy, class Group>
void param_registration(Group& group) {
  auto made = ike::initialize<T, shape{dynamic, 3}>(normed, ike::seed{1});
  const auto* const parameters = made.parameters().data();
  const auto* const gradients = made.gradients().data();
  const auto* const weight = made["fc2.weight"_s].data();
  const std::vector<T> values(made.parameters().begin(), made.parameters().end());
  auto first = ike::replicate<Policy>(std::move(made), group);
  auto model = std::move(first);
  const auto unchanged = [&] {
    return model.parameters().data() == parameters && model.gradients().data() == gradients &&
           model["fc2.weight"_s].data() == weight &&
           std::ranges::equal(model.parameters(), values) &&
           is_same_everywhere<T>(std::as_const(model).parameters(), group);
  };
  CHECK(unchanged());
  const auto x = slice(whole<T, 3>(1), group.rank(), group.size());
  for (int i = 0; i < 2; ++i) {
    model(x);
    CHECK(unchanged());
    model.backward(ike::ones<T, shape{dynamic, 5}>(all_rows / group.size()));
    CHECK(unchanged());
    CHECK(is_same_everywhere<T>(std::as_const(model).gradients(), group));
  }
}

/// distributed_test.py: grads_same_across_ranks_with_no_sync.
template <class T, class Group>
void grads_same_across_ranks_with_no_sync(Group& group) {
  auto model = ike::replicate<ike::replicate_policy<ike::bucket_cap<64>>>(
      ike::initialize<T, shape{dynamic, 3}>(normed, ike::seed{1}), group);
  const int rank = group.rank(), ranks = group.size();
  for (std::uint64_t step = 0; step < 6; ++step) {
    const auto x = slice(whole<T, 3>(step), rank, ranks);
    const auto y = slice(whole<T, 5>(100 + step), rank, ranks);
    if (step % 2 == 0) {
      const auto guard = model.no_sync();
      model.loss_backward(x, y, ike::mse_loss{});
    } else {
      model.loss_backward(x, y, ike::mse_loss{});
    }
    const bool same = is_same_everywhere<T>(std::as_const(model).gradients(), group);
    CHECK(same == (step % 2 == 1 || ranks == 1));
    if (step % 2 == 1) model.zero_grad();
  }
}

/// distributed_test.py: ddp_namedtuple. A network with several outputs, each with its gradient.
template <class T, class Group>
void several_outputs(Group& group) {
  constexpr auto net =
      ike::sequential("in"_m = ike::lazy_linear<4>{},
                      ike::parallel("a"_m = ike::lazy_linear<2>{}, "b"_m = ike::lazy_linear<5>{}));
  const auto made = ike::initialize<T, shape{dynamic, 3}>(net, ike::seed{1});
  auto model = ike::replicate<ike::replicate_policy<ike::bucket_cap<1>>>(made.clone(), group);
  auto local = made.clone();
  const int rank = group.rank(), ranks = group.size();
  const auto x = whole<T, 3>(1);
  const auto a = whole<T, 2>(2);
  const auto b = whole<T, 5>(3);
  const auto mine = slice(x, rank, ranks);
  model(mine);
  model.backward(std::tuple(slice(a, rank, ranks), slice(b, rank, ranks)));
  local(x);
  local.backward(std::tuple(a, b));
  std::vector<T> mean(local.gradients().begin(), local.gradients().end());
  for (T& g : mean) g /= static_cast<T>(ranks);
  CHECK(are_close(model.gradients(), mean, close<T>));
}

/// distributed_test.py: ddp_build_debug_param_to_name_mapping. Every parameter is in one bucket,
/// under its own name.
template <class T, class Group>
void parameter_names(Group& group) {
  auto model = ike::replicate<ike::replicate_policy<ike::bucket_cap<64>>>(
      ike::initialize<T, shape{dynamic, 3}>(normed, ike::seed{1}), group);
  std::vector<std::string_view> names;
  for (std::size_t b = 0; b < model.bucket_plan().size(); ++b)
    for (const auto& p : model.bucket_plan().parameters(b)) names.push_back(p.path.view());
  // In the order in which backward finishes them.
  CHECK(names == std::vector<std::string_view>{"fc2.weight", "fc2.bias", "norm.weight", "norm.bias",
                                               "fc1.weight", "fc1.bias"});
}

/// test_replicate_with_fsdp.py: replicate_tp_device_mesh, along one of two dimensions of a mesh.
/// Each column of the mesh is a separate model, averaged over its ranks only.
template <class T, class Group>
void along_a_mesh(Group& group) {
  if (group.size() % 2 != 0) return;
  const auto grid = ike::mesh<"dp", "tp">(group, {group.size() / 2, 2});
  auto& dp = grid.template get_group<"dp">();
  const auto column = static_cast<std::uint64_t>(grid.template coordinate<"tp">());
  const auto made = ike::initialize<T, shape{dynamic, 3}>(normed, ike::seed{1 + column});
  auto model = ike::replicate(made.clone(), dp);
  auto local = made.clone();
  const auto x = slice(whole<T, 3>(1), group.rank(), group.size());
  const auto y = slice(whole<T, 5>(2), group.rank(), group.size());
  model.loss_backward(x, y, ike::mse_loss{});
  local.loss_backward(x, y, ike::mse_loss{});
  dp.all_reduce(local.gradients(), ike::reduce_op::avg);
  CHECK(are_close(model.gradients(), local.gradients(), close<T>));
  CHECK(std::ranges::equal(model.parameters(), made.parameters()));
  CHECK_FALSE(is_same_everywhere<T>(std::as_const(model).gradients(), group));
}

}  // namespace conformance_checks
