#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/mixed_precision.hpp"
#include "ikebana/replicate/replicate.hpp"

// Mixed precision on every kind of group. All ranks call each function.
namespace mixed_precision_checks {

namespace ike = ikebana;
using namespace ike::literals;
using ike::bfloat16;
using ike::dynamic;
using ike::float16;
using ike::shape;

/// A group that records its all-reduces: "float16 x 64".
template <ike::process_group Group>
class counting_group {
 public:
  explicit counting_group(Group& group) : group_{&group} {}

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }

  template <class T>
  void all_reduce(std::span<T> data, ike::reduce_op op) {
    note<T>(data.size());
    group_->all_reduce(data, op);
  }
  template <class T>
  auto all_reduce_async(std::span<T> data, ike::reduce_op op) {
    note<T>(data.size());
    return group_->all_reduce_async(data, op);
  }
  template <class T>
  void broadcast(std::span<T> data, int root) {
    group_->broadcast(data, root);
  }
  template <class T>
  auto broadcast_async(std::span<T> data, int root) {
    return group_->broadcast_async(data, root);
  }
  template <class T>
  void all_gather(std::span<const T> mine, std::span<T> all) {
    group_->all_gather(mine, all);
  }
  template <class T>
  auto all_gather_async(std::span<const T> mine, std::span<T> all) {
    return group_->all_gather_async(mine, all);
  }
  template <class T>
  void reduce_scatter(std::span<const T> all, std::span<T> mine, ike::reduce_op op) {
    group_->reduce_scatter(all, mine, op);
  }
  template <class T>
  auto reduce_scatter_async(std::span<const T> all, std::span<T> mine, ike::reduce_op op) {
    return group_->reduce_scatter_async(all, mine, op);
  }
  void barrier() { group_->barrier(); }
  auto barrier_async() { return group_->barrier_async(); }

  /// The elements reduced in this type since the last `forget`.
  template <class T>
  std::size_t elements() const {
    return elements_[index<T>()];
  }
  std::size_t bytes() const { return bytes_; }
  void forget() {
    elements_ = {};
    bytes_ = 0;
  }

 private:
  template <class T>
  static constexpr std::size_t index() {
    return std::is_same_v<T, float>      ? 0
           : std::is_same_v<T, double>   ? 1
           : std::is_same_v<T, bfloat16> ? 2
           : std::is_same_v<T, float16>  ? 3
                                         : 4;
  }
  template <class T>
  void note(std::size_t n) {
    elements_[index<T>()] += n;
    bytes_ += n * sizeof(T);
  }

  Group* group_;
  std::array<std::size_t, 5> elements_{};
  std::size_t bytes_ = 0;
};

/// Rounds one number to P; void keeps it.
template <class P, class T>
T rounded(T x) {
  if constexpr (std::is_void_v<P>)
    return x;
  else if constexpr (std::is_same_v<P, bfloat16> || std::is_same_v<P, float16>)
    return static_cast<T>(static_cast<float>(P(static_cast<float>(x))));
  else
    return static_cast<T>(static_cast<P>(x));
}
template <class P, class T>
void round_all(std::span<T> x) {
  for (T& v : x) v = rounded<P>(v);
}
template <class P, class T>
bool is_rounded(std::span<T> x) {
  return std::ranges::all_of(x, [](T v) { return v == rounded<P>(v); });
}
template <class T>
std::vector<std::remove_const_t<T>> copied(std::span<T> x) {
  return {x.begin(), x.end()};
}

inline constexpr auto fc1 = ike::lazy_linear<7>{};
inline constexpr auto fc2 = ike::lazy_linear<3>{};
inline constexpr auto net = ike::sequential("fc1"_m = fc1, "tanh"_m = ike::tanh{}, "fc2"_m = fc2);
inline constexpr ike::dim_t rows = 4;
inline constexpr shape in{rows, 5}, middle{rows, 7}, out{rows, 3};

template <class T>
auto fresh() {
  return ike::initialize<T, in>(net, ike::seed{1});
}
template <class T>
auto x_of(int rank, int step = 0) {
  return ike::uniform<T, in>(ike::seed{static_cast<std::uint64_t>(7 + 100 * rank + step)});
}
template <class T>
auto y_of(int rank, int step = 0) {
  return ike::uniform<T, out>(ike::seed{static_cast<std::uint64_t>(5007 + 100 * rank + step)});
}

/// The format of numbers of P in a model of T.
template <class P, class T>
inline constexpr ike::number_format number_format_of =
    std::is_same_v<P, bfloat16>                            ? ike::number_format::bfloat16
    : std::is_same_v<P, float16>                           ? ike::number_format::float16
    : std::is_same_v<P, float>&& std::is_same_v<T, double> ? ike::number_format::float32
                                                           : ike::number_format::full;

/// Number by number, without the kernels that models round with.
template <class T>
void round_all(ike::number_format p, std::span<T> x) {
  if (p == ike::number_format::bfloat16) round_all<bfloat16>(x);
  if (p == ike::number_format::float16) round_all<float16>(x);
  if (p == ike::number_format::float32) round_all<float>(x);
}

/// The same network by hand: each leaf is a separate model, and every rounding between them is
/// explicit.
template <class T>
class by_hand {
 public:
  /// `first` for fc1 and tanh, `second` for fc2, `given` for the output of the whole.
  explicit by_hand(ike::number_format first, ike::number_format second,
                   ike::number_format given = ike::number_format::full)
      : p1_{first}, p2_{second}, given_{given} {}
  explicit by_hand(ike::number_format all) : by_hand(all, all) {}

  /// Runs on the weights of `m`; leaves gradients in the order of its flat arrays.
  template <class Model>
  void run(const Model& m, int rank, int step = 0) {
    take(m, first_, "fc1");
    take(m, second_, "fc2");
    round_all(p1_, first_.parameters());
    round_all(p2_, second_.parameters());
    auto x = x_of<T>(rank, step);
    round_all(p1_, x.span());
    first_(x);
    auto a = ike::tensor<T, middle>(first_.output());
    round_all(p1_, a.span());
    tanh_(a);
    auto b = ike::tensor<T, middle>(tanh_.output());
    round_all(p1_, b.span());
    auto entering = b;
    round_all(p2_, entering.span());
    second_(entering);
    output = ike::tensor<T, out>(second_.output());
    round_all(p2_, output.span());
    round_all(given_, output.span());

    ike::tensor<T, out> g;
    loss = ike::mse_loss{}.backward(output.view(), y_of<T>(rank, step).view(), g.data());
    round_all(given_, g.span());
    round_all(p2_, g.span());
    first_.zero_grad();
    second_.zero_grad();
    ike::tensor<T, middle> gb, ga;
    second_.backward(g, gb);
    round_all(p2_, gb.span());
    round_all(p1_, gb.span());
    // Reads the rounded y.
    ike::cpu::tanh_backward<T>(b.size(), b.data(), gb.data(), ga.data());
    round_all(p1_, ga.span());
    first_.backward(ga, input_gradient);
    round_all(p1_, input_gradient.span());
    round_all(p1_, first_.gradients());
    round_all(p2_, second_.gradients());
    // fc2 is finished first.
    gradients = copied(second_.gradients());
    gradients.insert(gradients.end(), first_.gradients().begin(), first_.gradients().end());
  }

  T loss{};
  ike::tensor<T, out> output;
  ike::tensor<T, in> input_gradient;
  std::vector<T> gradients;

 private:
  template <class Model, class Leaf>
  static void take(const Model& m, Leaf& leaf, std::string_view at) {
    const auto& p = m.current_program();
    for (std::size_t i = 0; i < p.all_parameters().size(); ++i) {
      const auto path = p.path(p.parameters[i]);
      if (!path.view().starts_with(at)) continue;
      const std::size_t own = path.view().ends_with("weight") ? 0 : 1;
      std::copy_n(m.parameters().data() + m.layout().offsets[i],
                  p.parameters[i].spec.extents.numel(),
                  leaf.parameters().data() + leaf.layout().offsets[own]);
    }
  }

  ike::number_format p1_, p2_, given_;
  decltype(ike::initialize<T, in>(fc1, ike::seed{1})) first_ =
      ike::initialize<T, in>(fc1, ike::seed{1});
  decltype(ike::initialize<T, middle>(ike::tanh{}, ike::seed{1})) tanh_ =
      ike::initialize<T, middle>(ike::tanh{}, ike::seed{1});
  decltype(ike::initialize<T, middle>(fc2, ike::seed{1})) second_ =
      ike::initialize<T, middle>(fc2, ike::seed{1});
};

/// The ranks' gradients reduced in R: summed in float (double: in double), in rank order, and
/// rounded once.
template <class R, class T>
std::vector<T> average(const std::vector<std::vector<T>>& ranks) {
  using wire = std::conditional_t<std::is_void_v<R>, T, R>;
  constexpr bool is_small = sizeof(wire) == 2;
  using sum_type = std::conditional_t<is_small, float, wire>;
  std::vector<T> all(ranks[0].size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    sum_type s = static_cast<sum_type>(rounded<R>(ranks[0][i]));
    for (std::size_t r = 1; r < ranks.size(); ++r)
      s += static_cast<sum_type>(rounded<R>(ranks[r][i]));
    s *= sum_type{1} / static_cast<sum_type>(ranks.size());
    all[i] = rounded<R>(static_cast<T>(s));
  }
  return all;
}

template <class Mixed>
using policy = ike::replicate_policy<Mixed>;

/// C6 compute_dtype and reduce_dtype: outputs and gradients of inputs and parameters equal those of
/// the network by hand, bit for bit; what is sent is of type R.
template <class T, class P, class R, class Output, class Group>
void computes_and_reduces(Group& real) {
  counting_group<Group> group{real};
  using mixed = ike::mixed_precision<P, R, Output>;
  using sent =
      std::conditional_t<!std::is_void_v<R>, R, std::conditional_t<std::is_void_v<P>, T, P>>;
  auto model = ike::replicate<policy<mixed>>(fresh<T>(), group);
  const auto masters = copied(std::as_const(model).parameters());

  by_hand<T> reference{number_format_of<P, T>, number_format_of<P, T>, number_format_of<Output, T>};
  std::vector<std::vector<T>> all;
  for (int r = 0; r < group.size(); ++r) {
    reference.run(model, r);
    all.push_back(reference.gradients);
  }
  reference.run(model, group.rank());

  group.forget();
  const T loss = model.loss_backward(x_of<T>(group.rank()), y_of<T>(group.rank()), ike::mse_loss{});
  CHECK(loss == reference.loss);
  CHECK(copied(model.output().span()) == copied(reference.output.span()));
  CHECK(copied(std::as_const(model).gradients()) == average<sent>(all));
  CHECK(group.template elements<sent>() == model.gradients().size());
  CHECK(group.bytes() == model.gradients().size() * sizeof(sent));
  CHECK(copied(std::as_const(model).parameters()) == masters);
}

/// Forward and backward separately, with the gradient of the input.
template <class T, class Group>
void gives_input_gradients(Group& group) {
  auto model =
      ike::replicate<policy<ike::mixed_precision<bfloat16, float, bfloat16>>>(fresh<T>(), group);
  by_hand<T> reference{ike::number_format::bfloat16};
  reference.run(model, group.rank());
  const auto y = model(x_of<T>(group.rank()));
  CHECK(copied(y.span()) == copied(reference.output.span()));
  for (int again = 0; again < 2; ++again) {
    const auto x = x_of<T>(group.rank());
    model(x);
    ike::tensor<T, out> g;
    ike::mse_loss{}.backward(model.output(), y_of<T>(group.rank()).view(), g.data());
    ike::tensor<T, in> gx;
    model.backward(g, gx);
    CHECK(copied(gx.span()) == copied(reference.input_gradient.span()));
    CHECK(copied(model.output().span()) == copied(reference.output.span()));
  }
}

/// C6 grad_acc_with_reduce_dtype: unsynchronised batches accumulate in the reduce type, and so does
/// the synchronised one.
template <class T, class P, class R, class Group>
void accumulates(Group& real) {
  counting_group<Group> group{real};
  auto model = ike::replicate<policy<ike::mixed_precision<P, R>>>(fresh<T>(), group);
  std::vector<std::vector<T>> all;
  by_hand<T> reference{number_format_of<P, T>};
  for (int r = 0; r < group.size(); ++r) {
    std::vector<T> sum;
    for (int step = 0; step < 3; ++step) {
      reference.run(model, r, step);
      if (step == 0)
        sum = reference.gradients;
      else
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += reference.gradients[i];
      round_all<R>(std::span<T>{sum});
    }
    all.push_back(sum);
  }
  const int me = group.rank();
  group.forget();
  {
    const auto guard = model.no_sync();
    for (int step = 0; step < 2; ++step)
      model.loss_backward(x_of<T>(me, step), y_of<T>(me, step), ike::mse_loss{});
  }
  CHECK(group.bytes() == 0);
  model.loss_backward(x_of<T>(me, 2), y_of<T>(me, 2), ike::mse_loss{});
  CHECK(copied(std::as_const(model).gradients()) == average<R>(all));
  CHECK(group.bytes() == model.gradients().size() * sizeof(R));
}

/// Master weights take steps that the computed precision could not represent, and end equal on all
/// ranks.
template <class T, class Group>
void trains(Group& group) {
  auto model = ike::replicate<policy<ike::mixed_precision<bfloat16, float>>>(fresh<T>(), group);
  ike::sgd optimizer{model, {.lr = 1e-4}};
  by_hand<T> reference{ike::number_format::bfloat16};
  auto weights = copied(std::as_const(model).parameters());
  for (int step = 0; step < 4; ++step) {
    std::vector<std::vector<T>> all;
    for (int r = 0; r < group.size(); ++r) {
      reference.run(model, r, step);
      all.push_back(reference.gradients);
    }
    const auto mean = average<float>(all);
    model.train_step(x_of<T>(group.rank(), step), y_of<T>(group.rank(), step), ike::mse_loss{},
                     optimizer);
    CHECK(copied(std::as_const(model).gradients()) == mean);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= static_cast<T>(1e-4) * mean[i];
    double worst = 0;
    for (std::size_t i = 0; i < weights.size(); ++i)
      worst = std::max(worst, static_cast<double>(std::abs(weights[i] - model.parameters()[i])));
    CHECK(worst < 1e-6);
  }
  CHECK(!is_rounded<bfloat16>(model.parameters()));
  std::vector<T> everywhere(weights.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(std::span<const T>{std::as_const(model).parameters()}, std::span<T>{everywhere});
  for (std::size_t i = 0; i < everywhere.size(); ++i)
    if (everywhere[i] != model.parameters()[i % weights.size()]) FAIL("element ", i, " differs");
}

/// One layer in another precision: its gradients are sent in its own type.
template <class T, class P2, class Group>
void mixes_precisions(Group& real) {
  counting_group<Group> group{real};
  using mixed =
      ike::mixed_precision<bfloat16, void, void, void, ike::mixed_precision_at<"fc2", P2>>;
  auto model = ike::replicate<policy<mixed>>(fresh<T>(), group);
  using sent = std::conditional_t<std::is_void_v<P2>, T, P2>;
  by_hand<T> reference{ike::number_format::bfloat16, number_format_of<P2, T>};
  std::vector<std::vector<T>> all;
  for (int r = 0; r < group.size(); ++r) {
    reference.run(model, r);
    all.push_back(reference.gradients);
  }
  auto expected = average<P2>(all);
  const auto others = average<bfloat16>(all);
  const auto first =
      static_cast<std::size_t>(std::min(model.layout().offsets[0], model.layout().offsets[1]));
  std::copy(others.begin() + static_cast<std::ptrdiff_t>(first), others.end(),
            expected.begin() + static_cast<std::ptrdiff_t>(first));
  group.forget();
  model.loss_backward(x_of<T>(group.rank()), y_of<T>(group.rank()), ike::mse_loss{});
  CHECK(copied(std::as_const(model).gradients()) == expected);
  CHECK(group.template elements<sent>() == first);
  CHECK(group.template elements<bfloat16>() == expected.size() - first);
  CHECK(group.bytes() == sizeof(sent) * first + 2 * (expected.size() - first));
}

template <class T, class Group>
void all_checks(Group& group) {
  computes_and_reduces<T, bfloat16, void, void>(group);
  computes_and_reduces<T, bfloat16, float, float>(group);
  computes_and_reduces<T, void, bfloat16, void>(group);
  gives_input_gradients<T>(group);
  accumulates<T, bfloat16, float>(group);
  trains<T>(group);
  mixes_precisions<T, float>(group);
}

}  // namespace mixed_precision_checks
