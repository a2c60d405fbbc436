#include "ikebana/nn/positional_encoding.hpp"

#include <doctest/doctest.h>

#include <type_traits>

#include "layers.hpp"

using namespace ikebana;

namespace {

template <class A, class B>
void check_same_bits(const A& a, const B& b, const shape& in) {
  leaf_run<float, A> one(a, in);
  leaf_run<float, B> two(b, in);
  for (any_leaf_run<float>* r :
       {static_cast<any_leaf_run<float>*>(&one), static_cast<any_leaf_run<float>*>(&two)}) {
    fill_random(r->parameters.data(), r->parameters.size(), 1);
    fill_random(r->input.data(), r->input.size(), 2);
    r->forward();
  }
  for (dim_t i = 0; i < one.output.size(); ++i) CHECK(one.output[i] == two.output[i]);
}

}  // namespace

TEST_CASE("sinusoidal_encoding computes what PyTorch recorded") {
  compare_layer("attention", "sinusoids", sinusoidal_encoding<>{});
  compare_layer("attention", "sinusoids_batch_first", sinusoidal_encoding<batch_first<true>>{});
  compare_layer("attention", "sinusoids_unbatched", sinusoidal_encoding<>{});
  CHECK(layers_not_compared("attention", "sinusoids").empty());
}

TEST_CASE("learned_positions computes what PyTorch recorded") {
  compare_layer("attention", "learned", learned_positions<7, 5>{});
  compare_layer("attention", "learned_batch_first", learned_positions<4, 5, batch_first<true>>{});
  compare_layer("attention", "learned_unbatched", learned_positions<4, 5>{});
  CHECK(layers_not_compared("attention", "learned").empty());
}

TEST_CASE("positions are those of the definition, however far they are") {
  leaf_run<double, sinusoidal_encoding<>> run({}, shape{4001, 6});
  run.forward();
  for (dim_t l : {0, 1, 31, 32, 63, 1000, 3999, 4000})
    for (dim_t j = 0; j < 6; j += 2) {
      const double angle = static_cast<double>(l) / std::pow(10000., static_cast<double>(j) / 6);
      CHECK(std::abs(run.output[l * 6 + j] - std::sin(angle)) < 2e-12);
      CHECK(std::abs(run.output[l * 6 + j + 1] - std::cos(angle)) < 2e-12);
    }
}

TEST_CASE("the gradients of positions are those of their forward") {
  check_gradients(sinusoidal_encoding<>{}, shape{3, 2, 5});
  check_gradients(learned_positions<5, 3>{}, shape{4, 2, 3});
  check_gradients(learned_positions<5, 3, batch_first<true>>{}, shape{2, 4, 3});
}

TEST_CASE("positions of an empty batch or of no length") {
  check_empty_batch(sinusoidal_encoding<>{}, shape{3, 0, 4});
  check_empty_batch(sinusoidal_encoding<batch_first<true>>{}, shape{3, 0, 4});
  check_empty_batch(learned_positions<5, 4>{}, shape{3, 0, 4});
  check_empty_batch(learned_positions<5, 4, batch_first<true>>{}, shape{2, 0, 4});
  check_empty_batch(learned_positions<5, 0>{}, shape{2, 3, 0});
}

TEST_CASE("lazy learned_positions become what the input brings") {
  static_assert(lazy_learned_positions<9>::is_lazy);
  static_assert(std::is_same_v<
                decltype(lazy_learned_positions<9, batch_first<true>>{}.become<shape{2, 3, 4}>()),
                learned_positions<9, 4, batch_first<true>>>);
  check_same_bits(learned_positions<9, 4>{}, learned_positions<9, dynamic>{}, {5, 2, 4});
  learned_positions<9, dynamic> m;
  const shape state[] = {shape{9, 6}};
  m.bind_state(state, {});
  CHECK(m.parameters()[0].extents == shape{9, 6});
  leaf_run<double, learned_positions<40, 50>> run({}, shape{1, 50});
  run.initialize(seed{2});
  double squares = 0;
  for (dim_t i = 0; i < 2000; ++i) squares += run.parameter(0)[i] * run.parameter(0)[i];
  CHECK(std::sqrt(squares / 2000) == doctest::Approx(0.02).epsilon(0.1));
}

TEST_CASE("positions say what is wrong with their input, and describe themselves") {
  CHECK(sentence_of(sinusoidal_encoding<>{}.infer(shape{4})) ==
        "sinusoidal_encoding expects an input of 2 or 3 dimensions, got 1 (input [4])");
  CHECK(sentence_of(learned_positions<9, 4>{}.infer(shape{4})) ==
        "learned_positions expects an input of 2 or 3 dimensions, got 1 (input [4])");
  CHECK(sentence_of(learned_positions<9, 4>{}.infer(shape{3, 5})) ==
        "learned_positions expects features = 4, got 5 (input [3, 5])");
  CHECK(sentence_of(learned_positions<9, 4>{}.infer(shape{10, 2, 4})) ==
        "learned_positions expects at most 9 positions, got 10 (input [10, 2, 4])");
  CHECK(learned_positions<9, 4, batch_first<true>>{}.infer(shape{10, dynamic, 4}).ok());
  CHECK(described(sinusoidal_encoding<>{}) == "batch_first=false");
  CHECK(described(lazy_learned_positions<9>{}) == "max_length=9, features=lazy, batch_first=false");
}
