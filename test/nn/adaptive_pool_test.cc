#include "ikebana/nn/adaptive_pool.hpp"

#include <doctest/doctest.h>

#include <ratio>
#include <set>
#include <type_traits>

#include "ikebana/nn/fractional_max_pool.hpp"
#include "layers.hpp"

using namespace ikebana;

namespace {

template <class M>
void compare(const std::string& name, const M& m) {
  compare_layer("adaptive_pool", name, m);
}

template <template <class...> class P1, template <class...> class P2, template <class...> class P3>
void compare_all(const std::string& kind) {
  compare(kind + "1d", P1<output_size<3>>{});
  compare(kind + "1d_more", P1<output_size<8>>{});
  compare(kind + "1d_unbatched", P1<output_size<4>>{});
  compare(kind + "1d_one", P1<output_size<1>>{});
  compare(kind + "2d", P2<output_size<3, 2>>{});
  compare(kind + "2d_one", P2<output_size<1>>{});
  compare(kind + "2d_unchanged", P2<output_size<unchanged, 3>>{});
  compare(kind + "2d_more", P2<output_size<5, 7>>{});
  compare(kind + "2d_unbatched", P2<output_size<4, 3>>{});
  compare(kind + "3d", P3<output_size<2, 3, 3>>{});
  compare(kind + "3d_one", P3<output_size<1>>{});
  compare(kind + "3d_unchanged", P3<output_size<2, unchanged, 2>>{});
  compare(kind + "3d_unbatched", P3<output_size<2>>{});
}

}  // namespace

TEST_CASE("adaptive pooling computes what PyTorch recorded") {
  compare_all<adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d>("adaptive_avg_pool");
  compare_all<adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d>("adaptive_max_pool");
  CHECK(layers_not_compared("adaptive_pool", "adaptive").empty());
}

TEST_CASE("fractional pooling computes what PyTorch recorded from the same samples") {
  using given = random_samples<true>;
  compare_layer("adaptive_pool", "fractional_max_pool2d",
                fractional_max_pool2d<kernel<2, 3>, output_size<4, 3>, given>{});
  compare_layer("adaptive_pool", "fractional_max_pool2d_one",
                fractional_max_pool2d<kernel<2>, output_size<1>, given>{});
  compare_layer("adaptive_pool", "fractional_max_pool3d",
                fractional_max_pool3d<kernel<2>, output_size<3, 4, 5>, given>{});
  using half = std::ratio<1, 2>;
  compare_layer(
      "adaptive_pool", "fractional_max_pool2d_ratio",
      fractional_max_pool2d<kernel<2, 3>, output_ratio<half, std::ratio<7, 10>>, given>{});
  compare_layer("adaptive_pool", "fractional_max_pool3d_ratio",
                fractional_max_pool3d<kernel<2>, output_ratio<std::ratio<3, 5>>, given>{});
  CHECK(layers_not_compared("adaptive_pool", "fractional").empty());
}

TEST_CASE("fractional pooling draws its own samples, for each plane") {
  const fractional_max_pool2d<kernel<2>, output_size<5>> m;
  leaf_run<double, std::remove_const_t<decltype(m)>> run(m, shape{1, 40, 12, 12});
  for (dim_t i = 0; i < run.input.size(); ++i) run.input[i] = static_cast<double>(i % 144);
  run.forward();
  std::set<double> first, second;
  for (dim_t p = 0; p < 40; ++p) {
    first.insert(run.output[p * 25]);
    second.insert(run.output[p * 25 + 1]);
    CHECK(run.output[p * 25 + 24] == 143);
  }
  // All planes begin at 0, and go on after 2 or 3 columns.
  CHECK(first == std::set<double>{13});
  CHECK(second == std::set<double>{15, 16});
  check_gradients(m, {2, 2, 7, 6});
  check_empty_batch(m, {0, 2, 7, 6});
  CHECK(sentence_of(m.infer({shape{2, 5, 8}})) ==
        "fractional_max_pool2d expects spatial extents of at least 6, got 5 (input [2, 5, 8])");
  constexpr fractional_max_pool2d<kernel<2>, output_ratio<std::ratio<29, 100>>> part{};
  check_gradients(part, {2, 2, 7, 6});
  CHECK(part.infer({shape{2, 7, dynamic}}).output() == shape{2, 2, dynamic});
  // 0.29 * 100 is 28.999999999999996, and 28 in PyTorch.
  CHECK(part.infer({shape{2, 100, 4}}).output() == shape{2, 28, 1});
  CHECK(described(part) == "kernel=2, output_ratio=0.29");
}

TEST_CASE("max pooling to given extents returns indices") {
  const auto check = [](const auto& both, const auto& plain, const shape& in, std::size_t spatial) {
    leaf_run<double, std::remove_cvref_t<decltype(both)>> a(both, in);
    leaf_run<double, std::remove_cvref_t<decltype(plain)>> b(plain, in);
    for (auto* run :
         {static_cast<any_leaf_run<double>*>(&a), static_cast<any_leaf_run<double>*>(&b)}) {
      fill_random(run->input.data(), in.numel(), 3);
      fill_random(run->output_gradient.data(), run->output.size(), 4);
      run->forward();
      run->backward(false);
    }
    const dim_t area = in.numel(in.rank() - spatial, in.rank()),
                windows = a.out.numel(in.rank() - spatial, in.rank());
    for (dim_t i = 0; i < b.output.size(); ++i) {
      CHECK(a.output[i] == b.output[i]);
      CHECK(a.input[i / windows * area + static_cast<dim_t>(a.outputs[1][i])] == a.output[i]);
    }
    for (dim_t i = 0; i < in.numel(); ++i)
      CHECK(a.input_gradient[i] == doctest::Approx(b.input_gradient[i]));
  };
  using indices = return_indices<true>;
  check(adaptive_max_pool1d<output_size<4>, indices>{}, adaptive_max_pool1d<output_size<4>>{},
        {2, 3, 11}, 1);
  check(adaptive_max_pool2d<output_size<3, 2>, indices>{}, adaptive_max_pool2d<output_size<3, 2>>{},
        {2, 6, 4}, 2);
  check(adaptive_max_pool3d<output_size<2>, indices>{}, adaptive_max_pool3d<output_size<2>>{},
        {1, 2, 5, 4, 3}, 3);
}

TEST_CASE("the gradients of adaptive pooling are those of its forward") {
  check_gradients(adaptive_avg_pool2d<output_size<3, 2>>{}, {2, 2, 5, 4});
  check_gradients(adaptive_max_pool3d<output_size<2>>{}, {1, 2, 3, 4, 3});
}

TEST_CASE("adaptive pooling of an empty batch, and to nothing") {
  check_empty_batch(adaptive_avg_pool2d<output_size<2>>{}, {0, 3, 5, 5});
  check_empty_batch(adaptive_max_pool2d<output_size<2>>{}, {0, 3, 5, 5});
  check_empty_batch(adaptive_avg_pool1d<output_size<0>>{}, {2, 3, 5});
  check_empty_batch(adaptive_max_pool2d<output_size<0, 3>>{}, {2, 3, 5, 5});
}

TEST_CASE("adaptive pooling says what is wrong with its input") {
  using global = adaptive_avg_pool2d<output_size<1>>;
  CHECK(sentence_of(global{}.infer(shape{8, 8})) ==
        "adaptive_avg_pool2d expects an input of 3 (unbatched) or 4 dimensions, got 2 (input [8, "
        "8])");
  CHECK(sentence_of(adaptive_max_pool1d<output_size<1>>{}.infer(shape{2, 3, 0})) ==
        "adaptive_max_pool1d expects spatial extents of at least 1, got 0 (input [2, 3, 0])");
}

TEST_CASE("adaptive pooling makes known extents of those that only run time knows") {
  CHECK(adaptive_avg_pool2d<output_size<3, unchanged>>{}
            .infer(shape{dynamic, 3, dynamic, dynamic})
            .output() == shape{dynamic, 3, 3, dynamic});
}

TEST_CASE("adaptive pooling describes itself by PyTorch's names") {
  CHECK(described(adaptive_avg_pool2d<output_size<3>>{}) == "output_size=3");
  CHECK(described(adaptive_max_pool2d<output_size<unchanged, 7>>{}) ==
        "output_size=(unchanged, 7)");
}
