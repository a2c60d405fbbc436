#include "ikebana/optim/clip_grad.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "flat_model.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/support/count_allocations.hpp"

using namespace ikebana;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
double norm_of(std::span<const T> x, double p) {
  double sum = 0, most = 0;
  for (T v : x) {
    sum += std::pow(std::fabs(static_cast<double>(v)), p);
    most = std::fmax(most, std::fabs(static_cast<double>(v)));
  }
  return std::isinf(p) ? most : std::pow(sum, 1 / p);
}

}  // namespace

TEST_CASE_TEMPLATE("clip_grad_norm scales to the norm that was asked for, and returns what it was",
                   T, float, double) {
  constexpr double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-13;
  for (const dim_t n : {1, 37, 5000})
    for (const double p : {1.0, 2.0, 3.5, infinity}) {
      flat_model<T> model(n);
      model.draw_gradients(3);
      const double before = norm_of<T>(model.gradients(), p);
      const std::vector<T> gradients(model.gradients().begin(), model.gradients().end());
      CHECK(clip_grad_norm(model, before + 1, {.norm_type = p}) ==
            doctest::Approx(before).epsilon(tolerance));
      CHECK(std::equal(gradients.begin(), gradients.end(), model.gradients().begin()));
      CHECK(clip_grad_norm(model, before / 4, {.norm_type = p}) ==
            doctest::Approx(before).epsilon(tolerance));
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < gradients.size(); ++i)
        wrong += !(std::fabs(model.gradients()[i] -
                             gradients[i] * static_cast<T>(before / 4 / (before + 1e-6))) <=
                   static_cast<T>(tolerance));
      CHECK(wrong == 0);
    }
}

TEST_CASE("the norm of two models together clips both") {
  flat_model<double> a(37), b(5);
  a.draw_gradients(3);
  b.draw_gradients(4);
  const double first = get_total_norm(a), second = get_total_norm(b),
               all = std::hypot(first, second);
  CHECK(first == doctest::Approx(norm_of<double>(a.gradients(), 2)));
  clip_grads_with_norm(a, all + 1, all);
  CHECK(get_total_norm(a) == first);
  clip_grads_with_norm(a, 0.5, all);
  clip_grads_with_norm(b, 0.5, all);
  CHECK(std::hypot(get_total_norm(a), get_total_norm(b)) == doctest::Approx(0.5).epsilon(1e-5));
  CHECK(get_total_norm(b) == doctest::Approx(0.5 * second / all).epsilon(1e-5));
  CHECK_THROWS_WITH_AS(get_total_norm(a, {.norm_type = 0}),
                       "get_total_norm expects a norm type above 0", error);
}

TEST_CASE("clip_grad_norm of gradients that are not finite") {
  for (const double p : {1.0, 2.0, infinity}) {
    flat_model<float> model;
    model.draw_gradients(0);
    model.slopes[3] = std::numeric_limits<float>::quiet_NaN();
    const float before = model.slopes[0];
    CHECK_THROWS_AS(clip_grad_norm(model, 1, {.norm_type = p, .error_if_nonfinite = true}), error);
    CHECK(model.slopes[0] == before);
    CHECK(std::isnan(clip_grad_norm(model, 1, {.norm_type = p})));
    CHECK(std::isnan(model.slopes[0]));
  }
  flat_model<float> model;
  CHECK_THROWS_WITH_AS(clip_grad_norm(model, 1, {.norm_type = 0}),
                       "clip_grad_norm expects a norm type above 0", error);
  model.slopes[0] = std::numeric_limits<float>::infinity();
  CHECK_THROWS_WITH_AS(
      clip_grad_norm(model, 1, {.norm_type = infinity, .error_if_nonfinite = true}),
      "clip_grad_norm: the total norm of order inf of the gradients is not "
      "finite, so they cannot be clipped; without error_if_nonfinite they are "
      "scaled by it anyway",
      error);
}

namespace {

/// An optimizer with max_norm does the same as clip_grad_norm and the optimizer without it, except
/// that the stored gradients stay unchanged.
template <class Optimizer, class Options>
void check_max_norm(Options options) {
  flat_model<float> clipped(5003), plain(5003);
  Options with = options;
  with.max_norm = 30;
  Optimizer optimizer{clipped, with}, other{plain, options};
  bool was_clipped = false, was_not = false;
  for (std::uint32_t step = 0; step < 6; ++step) {
    clipped.draw_gradients(step);
    plain.draw_gradients(step);
    for (flat_model<float>* m : {&clipped, &plain})
      for (float& g : m->gradients()) g *= 0.3f * static_cast<float>(step);
    const float before = clipped.slopes[1];
    optimizer.step();
    const double norm = clip_grad_norm(plain, 30);
    other.step();
    CHECK(optimizer.gradient_norm() == norm);
    CHECK(clipped.slopes[1] == before);
    (norm > 30 ? was_clipped : was_not) = true;
  }
  CHECK(was_clipped);
  CHECK(was_not);
  CHECK(std::equal(plain.values.data(), plain.values.data() + 5003, clipped.values.data()));
}

}  // namespace

TEST_CASE("optimizers clip in the same pass") {
  check_max_norm<sgd<float>>(sgd_options{.lr = 0.1});
  check_max_norm<sgd<float>>(
      sgd_options{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .maximize = true});
  check_max_norm<adam<float>>(adam_options{.weight_decay = 0.1, .amsgrad = true});
  check_max_norm<adamw<float>>(adamw_options{.lr = 0.01, .maximize = true});
}

TEST_CASE_TEMPLATE("an optimizer with max_norm and gradients that are not finite", Options,
                   sgd_options, adam_options) {
  using optimizer_type =
      std::conditional_t<std::is_same_v<Options, sgd_options>, sgd<float>, adam<float>>;
  flat_model<float> model;
  Options options;
  options.lr = 0.1;
  options.max_norm = 1;
  options.error_if_nonfinite = true;
  optimizer_type optimizer{model, options};
  model.draw_gradients(0);
  model.slopes[3] = std::numeric_limits<float>::infinity();
  const float before = model.values[0];
  CHECK_THROWS_AS(optimizer.step(), error);
  CHECK(model.values[0] == before);
  optimizer.options().error_if_nonfinite = false;
  optimizer.step();
  CHECK(std::isnan(model.values[3]));
  CHECK_FALSE(std::isnan(model.values[0]));
  CHECK_THROWS_AS(optimizer.begin_step(), error);
  optimizer.options().max_norm = -1;
  CHECK_THROWS_AS(optimizer.step(), error);
}

TEST_CASE("clip_grad_value limits every element") {
  flat_model<double> model(4);
  model.slopes[0] = -3;
  model.slopes[1] = 0.25;
  model.slopes[2] = 0.5;
  model.slopes[3] = 7;
  clip_grad_value(model, 0.5);
  CHECK(std::vector<double>(model.gradients().begin(), model.gradients().end()) ==
        std::vector<double>{-0.5, 0.25, 0.5, 0.5});
}

TEST_CASE("clipping no gradients, and without allocating") {
  flat_model<float> none(0);
  CHECK(clip_grad_norm(none, 1) == 0);
  flat_model<float> model;
  model.draw_gradients(1);
  const long before = allocation_count_here;
  clip_grad_norm(model, 0.1);
  clip_grad_value(model, 0.01);
  CHECK(allocation_count_here == before);
}
