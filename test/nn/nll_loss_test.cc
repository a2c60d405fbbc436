#include "ikebana/nn/nll_loss.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ikebana/cpu/softmax.hpp"
#include "recorded.hpp"

using namespace ikebana;

namespace {

/// What PyTorch recorded of cross_entropy, which is this loss after log_softmax.
template <class T, shape X, shape Y>
void compare_after_softmax(const std::string& name, const nll_loss& loss) {
  const state_dict& dict = recorded<T>("losses");
  const auto x = dict.at(name + "/x").template view<T, X>();
  const auto target = dict.at(name + "/target").template view<std::int64_t, Y>();
  const shape s = x.extents();
  const std::size_t c = s.rank() == 1 ? 0 : 1;
  tensor<T, X> logp(s);
  cpu::log_softmax_forward<T>(s.numel(0, c), s[c], s.numel(c + 1, s.rank()), x.data(), logp.data());
  const T value = loss(logp, target);
  check_close<T>(&value, dict.at(name + "/loss"), name + " loss");
  tensor<T, X> gradient(s), dx(s);
  CHECK(loss.backward(logp, target, gradient.data()) == value);
  cpu::log_softmax_backward<T>(s.numel(0, c), s[c], s.numel(c + 1, s.rank()), logp.data(),
                               gradient.data(), dx.data());
  check_close<T>(dx.data(), dict.at(name + "/gx"), name + " gx");
}

template <shape X, shape Y>
void compare_both(const std::string& name, const nll_loss& loss) {
  compare_after_softmax<float, X, Y>(name, loss);
  compare_after_softmax<double, X, Y>(name, loss);
}

constexpr shape rows{dynamic, dynamic}, labels{dynamic};

}  // namespace

TEST_CASE("nll_loss after log_softmax is PyTorch's cross entropy") {
  compare_both<rows, labels>("cross_entropy_mean", {});
  compare_both<rows, labels>("cross_entropy_sum", {.reduction = reduction::sum});
  compare_both<shape{7}, shape{}>("cross_entropy_unbatched", {});
  compare_both<rows, labels>("cross_entropy_ignore", {});
  compare_both<rows, labels>("cross_entropy_ignore_class2", {.ignore_index = 2});
  compare_both<shape{2, 5, 3, 4}, shape{2, 3, 4}>("cross_entropy_4d_mean", {});
}

TEST_CASE("nll_loss says what does not fit, before it writes anything") {
  const auto x = ones<float, shape{2, 3}>();
  auto target = zeros<std::int64_t, shape{2}>();
  target[1] = 3;
  auto gradient = full<float, shape{2, 3}>(7);
  CHECK_THROWS_WITH_AS(nll_loss{}.backward(x, target, gradient.data()),
                       "nll_loss expects labels from 0 to 2, got 3 at index 1", error);
  for (float g : gradient) CHECK(g == 7);
  CHECK_THROWS_WITH_AS(nll_loss{}.validate(shape{4, 3}, target),
                       "nll_loss expects a target extent of 4, got 2 (log-probabilities [4, 3], "
                       "target [2])",
                       shape_error);
  CHECK_FALSE(nll_loss::check(shape{2}, shape{2}).ok());
  CHECK_FALSE(nll_loss::check_elements<float, float>().ok());
  target[0] = target[1] = -100;
  CHECK(std::isnan(nll_loss{}(x, target)));
  CHECK(nll_loss{.reduction = reduction::sum}(x, target) == 0);
}
