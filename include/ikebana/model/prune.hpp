#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/language.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/state/patterns.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/path_pattern.hpp"

/// Pruning, PyTorch's torch.nn.utils.prune: chosen elements of parameters become zero and stay so
/// through the steps of every optimizer, until `remove` lets them go. A pattern (`*` stands for any
/// characters, a module for its parameters) chooses parameters; one that matches nothing is a
/// compile error.
///
/// `amount` is the part of the elements (or slices) to be pruned, a floating-point number from 0 to
/// 1, rounded to a number of them, or that number, an integer. Pruning again counts those that are
/// not pruned yet. Throws error for another amount, before anything has changed. Gradients are
/// those of the whole parameter. Weights that are loaded or assigned later are pruned by the next
/// step. Every rank of a replica must make the same calls. All allocate.
namespace ikebana::prune {

/// How many of the elements or slices.
class amount {
 public:
  template <std::floating_point F>
  constexpr amount(F part) : part_{static_cast<double>(part)} {}
  template <std::integral I>
  constexpr amount(I count) : count_{static_cast<dim_t>(count)}, is_count_{true} {}

  /// Throws error if it is not between 0 and n.
  dim_t of(dim_t n) const {
    if (is_count_ ? count_ < 0 || count_ > n : !(part_ >= 0 && part_ <= 1))
      throw_error(
          error("prune expects an amount from 0 to 1, or a number of elements that are there"));
    return is_count_ ? count_ : static_cast<dim_t>(std::nearbyint(part_ * static_cast<double>(n)));
  }

 private:
  double part_ = 0;
  dim_t count_ = 0;
  bool is_count_ = false;
};

}  // namespace ikebana::prune

namespace ikebana::detail {

template <class Model, class Patterns>
concept prunable = Patterns::size >
0 && all_match<Model, Patterns>;

/// Calls f(begin, extents) for each parameter that matches.
template <class Patterns, class Model, class F>
void for_each_chosen(const Model& m, const F& f) {
  const auto& p = m.current_program();
  for (std::size_t i = 0; i < Model::parameter_count; ++i)
    if (Patterns::matches(p.path(p.parameters[i]).view()))
      f(m.layout().offsets[i], p.parameters[i].spec.extents);
}

template <class Model>
bool is_pruned_at(Model& m, dim_t element) {
  const auto& pruned = m.frozen_parameters()->pruned;
  return std::binary_search(pruned.begin(), pruned.end(), element);
}
template <class Model>
double magnitude_at(const Model& m, dim_t element) {
  return std::fabs(static_cast<double>(m.parameters()[static_cast<std::size_t>(element)]));
}

/// Adds elements to those that are pruned.
template <class Model>
void add_pruned(Model& m, const std::vector<dim_t>& more) {
  auto& pruned = m.frozen_parameters()->pruned;
  pruned.insert(pruned.end(), more.begin(), more.end());
  std::sort(pruned.begin(), pruned.end());
  pruned.erase(std::unique(pruned.begin(), pruned.end()), pruned.end());
  const auto all = m.parameters();
  m.frozen_parameters()->apply_pruning(all.data(), 0, static_cast<dim_t>(all.size()));
}

/// Appends those of the candidates that are to be pruned: with the lowest scores, of equal ones the
/// first.
inline void take_lowest(std::vector<std::pair<double, dim_t>>& all,
                        const ikebana::prune::amount& some, std::vector<dim_t>& found) {
  const auto n = static_cast<std::size_t>(some.of(static_cast<dim_t>(all.size())));
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < n; ++i) found.push_back(all[i].second);
  all.clear();
}

/// Prunes elements by score(element), of each parameter by itself or of all together.
template <class Patterns, class Model, class Score>
void prune_elements(Model& m, const ikebana::prune::amount& some, bool together,
                    const Score& score) {
  std::vector<dim_t> found;
  std::vector<std::pair<double, dim_t>> all;
  for_each_chosen<Patterns>(m, [&](dim_t begin, const shape& extents) {
    for (dim_t i = begin; i < begin + extents.numel(); ++i)
      if (!is_pruned_at(m, i)) all.emplace_back(score(i), i);
    if (!together) take_lowest(all, some, found);
  });
  if (together) take_lowest(all, some, found);
  add_pruned(m, found);
}

/// Prunes slices of each parameter along `dim` by score(elements of the slice).
template <class Patterns, class Model, class Score>
void prune_slices(Model& m, const ikebana::prune::amount& some, int dim, const Score& score) {
  std::vector<dim_t> found;
  for_each_chosen<Patterns>(m, [&](dim_t begin, const shape& extents) {
    const auto rank = static_cast<int>(extents.rank());
    const int along = dim < 0 ? dim + rank : dim;
    if (along < 0 || along >= rank)
      throw_error(error("prune expects a dimension that each of the parameters has"));
    const auto d = static_cast<std::size_t>(along);
    const dim_t inner = extents.numel(d + 1, extents.rank()), outer = extents.numel(0, d);
    const auto slice = [&](dim_t k) {
      std::vector<dim_t> elements;
      for (dim_t o = 0; o < outer; ++o)
        for (dim_t i = 0; i < inner; ++i)
          elements.push_back(begin + (o * extents[d] + k) * inner + i);
      return elements;
    };
    std::vector<std::pair<double, dim_t>> all;
    for (dim_t k = 0; k < extents[d]; ++k) {
      const std::vector<dim_t> elements = slice(k);
      if (!std::all_of(elements.begin(), elements.end(),
                       [&](dim_t e) { return is_pruned_at(m, e); }))
        all.emplace_back(score(elements), k);
    }
    std::vector<dim_t> slices;
    take_lowest(all, some, slices);
    for (const dim_t k : slices)
      for (const dim_t e : slice(k)) found.push_back(e);
  });
  add_pruned(m, found);
}

/// A number from 0 to 1 for each index.
inline double uniform_at(seed s, dim_t i) {
  const auto words = random_stream{s, 0}.words(static_cast<std::uint32_t>(i / 4));
  return words[static_cast<std::size_t>(i % 4)] * 0x1p-32;
}

}  // namespace ikebana::detail

namespace ikebana::prune {

/// Those of the least magnitude, of each parameter.
template <detail::literal... Patterns, class Model>
requires(detail::prunable<Model, detail::pattern_list<Patterns...>>) void l1_unstructured(
    Model& m, const amount& some) {
  detail::prune_elements<detail::pattern_list<Patterns...>>(
      m, some, false, [&](dim_t i) { return detail::magnitude_at(m, i); });
}
/// Those of the least magnitude of all the parameters together: PyTorch's global_unstructured with
/// L1Unstructured.
template <detail::literal... Patterns, class Model>
requires(detail::prunable<Model, detail::pattern_list<Patterns...>>) void global_l1_unstructured(
    Model& m, const amount& some) {
  detail::prune_elements<detail::pattern_list<Patterns...>>(
      m, some, true, [&](dim_t i) { return detail::magnitude_at(m, i); });
}
/// Random ones, of each parameter.
template <detail::literal... Patterns, class Model>
requires(detail::prunable<Model, detail::pattern_list<Patterns...>>) void random_unstructured(
    Model& m, const amount& some, seed s) {
  detail::prune_elements<detail::pattern_list<Patterns...>>(
      m, some, false, [&](dim_t i) { return detail::uniform_at(s, i); });
}
/// Slices along a dimension, negative from the end, with the least n-norm; n is above 0 or
/// infinity.
template <detail::literal... Patterns, class Model>
requires(detail::prunable<Model, detail::pattern_list<Patterns...>>) void ln_structured(
    Model& m, const amount& some, double n, int dim) {
  detail::prune_slices<detail::pattern_list<Patterns...>>(
      m, some, dim, [&](const std::vector<dim_t>& elements) {
        double norm = 0;
        for (const dim_t e : elements) {
          const double x = detail::magnitude_at(m, e);
          norm = std::isinf(n) ? std::fmax(norm, x) : norm + std::pow(x, n);
        }
        return std::isinf(n) ? norm : std::pow(norm, 1 / n);
      });
}
/// Random slices along a dimension.
template <detail::literal... Patterns, class Model>
requires(detail::prunable<Model, detail::pattern_list<Patterns...>>) void random_structured(
    Model& m, const amount& some, int dim, seed s) {
  detail::prune_slices<detail::pattern_list<Patterns...>>(
      m, some, dim,
      [&](const std::vector<dim_t>& elements) { return detail::uniform_at(s, elements.front()); });
}
/// The elements where `mask`, of as many elements as the parameters together, is false.
template <detail::literal... Patterns, class Model>
requires(detail::prunable<Model, detail::pattern_list<Patterns...>>) void custom_from_mask(
    Model& m, std::span<const bool> mask) {
  std::vector<dim_t> found;
  std::size_t n = 0;
  detail::for_each_chosen<detail::pattern_list<Patterns...>>(
      m, [&](dim_t begin, const shape& extents) {
        for (dim_t i = 0; i < extents.numel(); ++i, ++n)
          if (n < mask.size() && !mask[n]) found.push_back(begin + i);
      });
  if (n != mask.size())
    throw_error(error("prune expects a mask of as many elements as the parameters have"));
  detail::add_pruned(m, found);
}

/// Lets the elements change again, from zero on.
template <detail::literal... Patterns, class Model>
requires(detail::prunable<Model, detail::pattern_list<Patterns...>>) void remove(Model& m) {
  auto& pruned = m.frozen_parameters()->pruned;
  detail::for_each_chosen<detail::pattern_list<Patterns...>>(
      m, [&](dim_t begin, const shape& extents) {
        std::erase_if(pruned, [&](dim_t e) { return e >= begin && e < begin + extents.numel(); });
      });
}

/// How many elements of the parameters are pruned.
template <detail::literal... Patterns, class Model>
requires(detail::prunable<Model, detail::pattern_list<Patterns...>>) dim_t pruned_count(Model& m) {
  dim_t n = 0;
  detail::for_each_chosen<detail::pattern_list<Patterns...>>(
      m, [&](dim_t begin, const shape& extents) {
        for (const dim_t e : m.frozen_parameters()->pruned)
          n += e >= begin && e < begin + extents.numel();
      });
  return n;
}

}  // namespace ikebana::prune
