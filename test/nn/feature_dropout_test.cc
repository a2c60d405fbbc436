#include "ikebana/nn/feature_dropout.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "layers.hpp"

using namespace ikebana;

namespace {

/// PyTorch's y and gradient of x, of masks of its own, are those of the constants of our masks.
void check_alpha(const std::string& name, double p, dim_t each) {
  compares("layers_written", name);
  const auto values = [&](const char* tensor) {
    return reinterpret_cast<const double*>(
        recorded<double>("layers_written").at(name + tensor).bytes.data());
  };
  const double *x = values("/x0"), *y = values("/y0"), *dy = values("/gy0"), *dx = values("/gx0");
  const auto [scale, shift, dropped] = detail::dropout_values::alpha(p);
  int kinds[2] = {};
  for (dim_t block = 0; block < 120 / each; ++block) {
    const bool is_kept = std::abs(y[block * each] - dropped) > 1e-12;
    ++kinds[is_kept];
    for (dim_t i = block * each; i < (block + 1) * each; ++i) {
      CHECK(y[i] == doctest::Approx(is_kept ? scale * x[i] + shift : dropped).epsilon(1e-12));
      CHECK(dx[i] == doctest::Approx(is_kept ? scale * dy[i] : 0).epsilon(1e-12));
    }
  }
  CHECK(kinds[0] > 0);
  CHECK(kinds[1] > 0);
}

}  // namespace

TEST_CASE("channel dropout drops whole channels and scales the others") {
  leaf_run<float, dropout2d> run({.p = 0.25}, {50, 40, 2, 3});
  for (float& x : run.input.span()) x = 3;
  run.forward();
  int dropped = 0;
  for (dim_t plane = 0; plane < 2000; ++plane) {
    const float first = run.output[plane * 6];
    CHECK((first == 0 || std::abs(first - 4) < 1e-5));
    for (dim_t i = 1; i < 6; ++i) CHECK(run.output[plane * 6 + i] == first);
    dropped += first == 0;
  }
  CHECK(std::abs(dropped / 2000. - 0.25) < 0.04);  // four standard deviations
}

TEST_CASE("alpha dropout keeps the mean and the variance of standard normal numbers") {
  for (double p : {0.1, 0.5}) {
    leaf_run<double, alpha_dropout> run({.p = p}, {200, 200});
    fill_normal(random_stream{seed{1}, 0}, 0, 1, run.input.data(), 40000);
    run.forward();
    double sum = 0, squares = 0;
    int dropped = 0;
    const double low = [&] {
      double least = 0;
      for (double y : run.output.span()) least = std::fmin(least, y);
      return least;
    }();
    for (dim_t i = 0; i < 40000; ++i) {
      sum += run.output[i];
      squares += run.output[i] * run.output[i];
    }
    const auto [a, b, value] = detail::dropout_values::alpha(p);
    for (dim_t i = 0; i < 40000; ++i) {
      if (run.output[i] == value)
        ++dropped;
      else
        CHECK(std::abs(run.output[i] - (a * run.input[i] + b)) < 1e-12);
    }
    CHECK(low <= value);
    CHECK(std::abs(sum / 40000) < 0.03);
    CHECK(std::abs(squares / 40000 - 1) < 0.04);
    CHECK(std::abs(dropped / 40000. - p) < 0.01);
  }
}

TEST_CASE("the values of alpha dropout are PyTorch's") {
  // torch.nn.functional.alpha_dropout(x, p, True), 1.13.
  const auto half = detail::dropout_values::alpha(0.5);
  CHECK(std::abs(half.scale + half.shift - 1.6655988251839635) < 1e-12);
  CHECK(std::abs(half.shift - 0.7791939305180315) < 1e-12);
  CHECK(std::abs(half.dropped + 0.7791939305180315) < 1e-12);
  const auto fifth = detail::dropout_values::alpha(0.2);
  CHECK(std::abs(fifth.shift - 0.30903996214409446) < 1e-12);
  CHECK(std::abs(fifth.dropped + 1.2361598485763778) < 1e-12);
}

TEST_CASE("alpha dropouts compute what PyTorch recorded") {
  compare_layer("written", "alpha_dropout", alpha_dropout{.p = 0.3}, false);
  check_alpha("alpha_dropout_random_0.2", 0.2, 1);
  check_alpha("alpha_dropout_random_0.5", 0.5, 1);
  CHECK(layers_not_compared("written", "alpha_dropout").empty());
  compare_layer("written", "feature_alpha_dropout", feature_alpha_dropout{.p = 0.3}, false);
  check_alpha("feature_alpha_dropout_random_0.2", 0.2, 3);
  check_alpha("feature_alpha_dropout_random_0.5", 0.5, 3);
  CHECK(layers_not_compared("written", "feature_alpha_dropout").empty());
}

TEST_CASE("feature alpha dropout drops whole channels") {
  leaf_run<float, feature_alpha_dropout> run({.p = 0.5}, {20, 10, 4});
  for (float& x : run.input.span()) x = 1;
  run.forward();
  int kinds[2] = {};
  for (dim_t plane = 0; plane < 200; ++plane) {
    const float first = run.output[plane * 4];
    for (dim_t i = 1; i < 4; ++i) CHECK(run.output[plane * 4 + i] == first);
    ++kinds[first > 0];
  }
  CHECK(kinds[0] > 60);
  CHECK(kinds[1] > 60);
}

TEST_CASE("backward of these dropouts drops what forward dropped, and adds nothing") {
  check_gradients(dropout1d{.p = 0.3}, {4, 5, 3});
  check_gradients(dropout2d{}, {6, 2, 3});
  check_gradients(dropout3d{}, {2, 3, 2, 1, 2});
  check_gradients(alpha_dropout{.p = 0.3}, {5, 9});
  check_gradients(feature_alpha_dropout{}, {3, 5, 2});
}

TEST_CASE("in evaluation these dropouts are the identity, and so they are of nothing") {
  leaf_run<double, dropout1d> run({.p = 0.9}, {2, 5, 3});
  fill_random(run.input.data(), 30, 1);
  run.forward(false);
  for (dim_t i = 0; i < 30; ++i) CHECK(run.output[i] == run.input[i]);
  leaf_run<double, alpha_dropout> none({.p = 0}, {30});
  fill_random(none.input.data(), 30, 1);
  none.forward();
  for (dim_t i = 0; i < 30; ++i) CHECK(none.output[i] == none.input[i]);
  leaf_run<double, feature_alpha_dropout> all({.p = 1}, {2, 5, 3});
  fill_random(all.input.data(), 30, 1);
  all.forward();
  for (dim_t i = 0; i < 30; ++i) CHECK(all.output[i] == 0);
  check_empty_batch(dropout2d{}, {0, 3, 4, 4});
  check_empty_batch(alpha_dropout{}, {0, 3});
}

TEST_CASE("these dropouts say what is wrong with their input") {
  CHECK(sentence_of(dropout2d{}.infer(shape{3, 4})) ==
        "dropout2d expects an input of 3 (unbatched) or 4 dimensions, got 2 (input [3, 4])");
  CHECK(sentence_of(feature_alpha_dropout{}.infer(shape{3})) ==
        "feature_alpha_dropout expects an input of at least 2 dimensions, got 1 (input [3])");
  CHECK(described(dropout3d{.p = 0.25}) == "p=0.25");
}
