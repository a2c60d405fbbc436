#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/io/dataset.hpp"
#include "ikebana/io/sample_loader.hpp"

// Transforms of samples, applied when a data_loader reads them, on its worker threads:
//
//     const auto augmented = ike::transformed(
//         images, ike::random_crop<32, 32>{.padding = 4}, ike::random_horizontal_flip{});
//     ike::data_loader loader{augmented, {.batch = 128, .shuffle = ike::seed{1}, .workers = 2}};
//
// A transform is a function of a tensor, or of a tensor and a random_stream, that returns a tensor.
// Images are [channels, height, width].

namespace ikebana {

namespace detail {

/// Calls f(x..., stream) if it takes one, else f(x...).
template <class F, class... X>
decltype(auto) call_transform(const F& f, [[maybe_unused]] const random_stream& stream, X&&... x) {
  if constexpr (std::is_invocable_v<const F&, X..., const random_stream&>)
    return f(std::forward<X>(x)..., stream);
  else
    return f(std::forward<X>(x)...);
}

/// A stream of its own for the k-th of several transforms.
constexpr random_stream substream(random_stream stream, std::size_t k) {
  stream.path = hash_path("transform", stream.path + k);
  return stream;
}

/// An integer in [0, n) from word k of a stream.
constexpr dim_t draw_below(const random_stream& stream, std::uint32_t k, dim_t n) {
  const std::uint32_t word = stream.words(k / 4)[k % 4];
  return static_cast<dim_t>((std::uint64_t{word} * static_cast<std::uint64_t>(n)) >> 32);
}

/// True with probability p.
constexpr bool draw_bool(const random_stream& stream, double p) {
  return 0.5 + 0.5 * static_cast<double>(signed_unit(stream.words(0)[0])) < p;
}

template <shape S>
constexpr void check_image() {
  static_assert(S.rank() == 3 && S.is_static(),
                "ikebana: transforms of images take tensors [channels, height, width] of static "
                "shape");
}

}  // namespace detail

/// A dataset whose samples pass through a function of all their elements, which returns the new
/// sample: see mapped and transformed.
template <class Dataset, class F>
class mapped_dataset {
 public:
  mapped_dataset(Dataset&& dataset, F f)
      : dataset_(std::forward<Dataset>(dataset)), f_{std::move(f)} {}

  dim_t size() const { return dataset_.size(); }
  auto sample(dim_t i, const random_stream& stream) const {
    // The samples of the dataset itself have another stream than the function.
    auto before = detail::sample_of(dataset_, i, detail::substream(stream, 0));
    return std::apply(
        [&](auto&... x) { return detail::call_transform(f_, detail::substream(stream, 1), x...); },
        before);
  }

 private:
  Dataset dataset_;
  F f_;
};

/// A dataset whose samples are `f(elements...)`, or `f(elements..., random_stream)`, of those of
/// another one, which is held by reference unless it is moved in. It can be a tensor_dataset.
template <class Dataset, class F>
auto mapped(Dataset&& dataset, F f) {
  return mapped_dataset<Dataset, F>(std::forward<Dataset>(dataset), std::move(f));
}

namespace detail {

template <std::size_t K, class Functions, class X>
auto apply_transforms(const Functions& f, const X& x, const random_stream& stream) {
  if constexpr (K == std::tuple_size_v<Functions>)
    return x;
  else
    return apply_transforms<K + 1>(f, call_transform(std::get<K>(f), substream(stream, K), x),
                                   stream);
}

}  // namespace detail

/// A dataset whose samples have their first element changed: see transformed.
template <class Dataset, class... F>
class transformed_dataset {
 public:
  transformed_dataset(Dataset&& dataset, F... f)
      : dataset_(std::forward<Dataset>(dataset)), f_{std::move(f)...} {}

  dim_t size() const { return dataset_.size(); }
  auto sample(dim_t i, const random_stream& stream) const {
    auto before = detail::sample_of(dataset_, i, detail::substream(stream, sizeof...(F)));
    return std::apply(
        [&](const auto& x, auto&... others) {
          return std::tuple(detail::apply_transforms<0>(f_, x, stream), std::move(others)...);
        },
        before);
  }

 private:
  Dataset dataset_;
  std::tuple<F...> f_;
};

/// A dataset in which the first element of each sample has passed through these transforms, one
/// after another. The dataset is held by reference unless it is moved in.
template <class Dataset, class... F>
auto transformed(Dataset&& dataset, F... f) {
  return transformed_dataset<Dataset, F...>(std::forward<Dataset>(dataset), std::move(f)...);
}

/// The samples of a dataset at these indices: see subset.
template <class Dataset>
class subset_dataset {
 public:
  subset_dataset(Dataset&& dataset, std::vector<dim_t> indices)
      : dataset_(std::forward<Dataset>(dataset)), indices_{std::move(indices)} {
    for (const dim_t i : indices_)
      if (i < 0 || i >= dataset_.size())
        throw error("subset: there is no sample " + std::to_string(i) + " of " +
                    std::to_string(dataset_.size()));
  }

  dim_t size() const { return static_cast<dim_t>(indices_.size()); }
  auto sample(dim_t i, const random_stream& stream) const {
    return detail::sample_of(dataset_, indices_[static_cast<std::size_t>(i)], stream);
  }

 private:
  Dataset dataset_;
  std::vector<dim_t> indices_;
};

/// The samples at these indices of a dataset, which is held by reference unless it is moved in.
/// Throws error for an index that is none.
template <class Dataset>
auto subset(Dataset&& dataset, std::vector<dim_t> indices) {
  return subset_dataset<Dataset>(std::forward<Dataset>(dataset), std::move(indices));
}

/// Splits a dataset of one's own, which must outlive both parts, by a permutation that depends only
/// on the seed: `auto [train, test] = random_split(data, data.size() * 4 / 5, seed{1})`. Throws
/// shape_error if train_count exceeds the number of samples. O(samples).
template <detail::has_samples Dataset>
auto random_split(const Dataset& dataset, dim_t train_count, seed s) {
  const dim_t count = dataset.size();
  if (train_count < 0 || train_count > count)
    throw shape_error(
        diagnostic{"random_split expects at most {expected} samples to train on, got {number}",
                   count, train_count});
  std::vector<dim_t> order(static_cast<std::size_t>(count));
  shuffle(random_stream{s, hash_path("split")}, order.data(), count);
  return dataset_split<subset_dataset<const Dataset&>>{
      subset(dataset, {order.begin(), order.begin() + train_count}),
      subset(dataset, {order.begin() + train_count, order.end()})};
}

/// The part [H, W] of an image at a random offset, after `padding` zeros on each side
/// (torchvision's RandomCrop). Throws shape_error if the padded image is smaller. Allocates its
/// result.
template <dim_t H, dim_t W>
struct random_crop {
  dim_t padding = 0;

  template <tensor_like X>
  auto operator()(const X& x, const random_stream& stream) const {
    detail::check_image<X::static_shape>();
    constexpr dim_t channels = X::static_shape[0], height = X::static_shape[1],
                    width = X::static_shape[2];
    const dim_t down = height + 2 * padding - H, right = width + 2 * padding - W;
    if (padding < 0 || down < 0 || right < 0)
      throw shape_error(diagnostic{
          "random_crop expects an image of at least {other}, got {input} padded by {got}", 0,
          padding, X::static_shape, shape{channels, H, W}});
    const dim_t top = detail::draw_below(stream, 0, down + 1) - padding,
                left = detail::draw_below(stream, 1, right + 1) - padding;
    tensor<typename X::value_type, shape{channels, H, W}> out;
    for (dim_t c = 0; c < channels; ++c)
      for (dim_t i = 0; i < H; ++i)
        for (dim_t j = 0; j < W; ++j) {
          const dim_t row = i + top, column = j + left;
          out.data()[(c * H + i) * W + j] =
              row >= 0 && row < height && column >= 0 && column < width
                  ? x.data()[(c * height + row) * width + column]
                  : typename X::value_type{};
        }
    return out;
  }
};

/// The middle [H, W] of an image (torchvision's CenterCrop, without padding). Allocates its result.
template <dim_t H, dim_t W>
struct center_crop {
  template <tensor_like X>
  auto operator()(const X& x) const {
    detail::check_image<X::static_shape>();
    constexpr dim_t channels = X::static_shape[0], height = X::static_shape[1],
                    width = X::static_shape[2];
    static_assert(H <= height && W <= width,
                  "ikebana: center_crop expects an image that is at least as large");
    // Halves are rounded to the even number, as Python's round does.
    constexpr auto half = [](dim_t n) { return n % 4 == 3 ? (n + 1) / 2 : n / 2; };
    constexpr dim_t top = half(height - H), left = half(width - W);
    tensor<typename X::value_type, shape{channels, H, W}> out;
    for (dim_t c = 0; c < channels; ++c)
      for (dim_t i = 0; i < H; ++i)
        std::memcpy(out.data() + (c * H + i) * W, x.data() + (c * height + i + top) * width + left,
                    static_cast<std::size_t>(W) * sizeof(typename X::value_type));
    return out;
  }
};

namespace detail {

template <bool Horizontal>
struct random_flip {
  double p = 0.5;

  template <tensor_like X>
  auto operator()(const X& x, const random_stream& stream) const {
    check_image<X::static_shape>();
    constexpr dim_t channels = X::static_shape[0], height = X::static_shape[1],
                    width = X::static_shape[2];
    tensor<typename X::value_type, X::static_shape> out;
    const bool flips = draw_bool(stream, p);
    for (dim_t c = 0; c < channels; ++c)
      for (dim_t i = 0; i < height; ++i) {
        const auto* const from =
            x.data() + (c * height + (flips && !Horizontal ? height - 1 - i : i)) * width;
        auto* const to = out.data() + (c * height + i) * width;
        for (dim_t j = 0; j < width; ++j) to[j] = from[flips && Horizontal ? width - 1 - j : j];
      }
    return out;
  }
};

}  // namespace detail

/// Mirrors an image left to right with probability p (torchvision's RandomHorizontalFlip).
/// Allocates its result.
using random_horizontal_flip = detail::random_flip<true>;
/// The same top to bottom (RandomVerticalFlip).
using random_vertical_flip = detail::random_flip<false>;

/// (x - mean[c]) / deviation[c] for each channel c of a tensor [C, ...] (torchvision's Normalize).
/// Throws shape_error if it has another number of channels. Allocates its result.
template <class T, std::size_t C>
struct normalize_channels {
  std::array<T, C> mean, deviation;

  template <tensor_like X>
  auto operator()(const X& x) const {
    static_assert(
        X::static_shape.rank() >= 1 && X::static_shape[0] == dim_t{C},
        "ikebana: normalize_channels expects a mean and a deviation for each channel of a tensor "
        "[channels, ...]");
    static_assert(std::is_same_v<typename X::value_type, T>,
                  "ikebana: normalize_channels expects means of the tensor's element type");
    tensor<T, X::static_shape> out(x.extents());
    const dim_t area = x.size() / dim_t{C};
    for (std::size_t c = 0; c < C; ++c)
      for (dim_t i = 0; i < area; ++i) {
        const dim_t at = static_cast<dim_t>(c) * area + i;
        out.data()[at] = (x.data()[at] - mean[c]) / deviation[c];
      }
    return out;
  }
};
template <class T, std::size_t C>
normalize_channels(std::array<T, C>, std::array<T, C>) -> normalize_channels<T, C>;

namespace detail {

/// Numbers from consecutive words of a stream.
struct word_source {
  random_stream stream;
  dim_t used = 0;

  /// In (0, 1].
  double unit() {
    const auto w = stream.words(static_cast<std::uint32_t>(used++));
    return 0.5 - 0.5 * signed_unit(w[0], w[1]);
  }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(unit()));
    return radius * std::cos(2 * std::numbers::pi * unit());
  }
  /// Marsaglia and Tsang, A Simple Method for Generating Gamma Variables, 2000.
  double gamma(double a) {
    if (a < 1) {
      const double g = gamma(a + 1);
      return g * std::pow(unit(), 1 / a);
    }
    const double d = a - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal(), v = (1 + c * x) * (1 + c * x) * (1 + c * x);
      if (v > 0 && std::log(unit()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }
  /// Beta(a, a).
  double beta(double a) {
    const double x = gamma(a), y = gamma(a);
    return x + y > 0 ? x / (x + y) : unit() < 0.5 ? 0 : 1;
  }
};

}  // namespace detail

/// A dataset of mixtures: see mixup.
template <dim_t Classes, class Dataset>
class mixup_dataset {
 public:
  mixup_dataset(Dataset&& dataset, double alpha)
      : dataset_(std::forward<Dataset>(dataset)), alpha_{alpha} {
    if (!(alpha > 0) || alpha - alpha != 0)
      throw error("mixup expects a positive alpha, got " + std::to_string(alpha));
  }

  dim_t size() const { return dataset_.size(); }
  auto sample(dim_t i, const random_stream& stream) const {
    detail::word_source words{detail::substream(stream, 2)};
    const double share = words.beta(alpha_);
    const dim_t j =
        std::min(static_cast<dim_t>((1 - words.unit()) * static_cast<double>(size())), size() - 1);
    const auto [x, t] = detail::sample_of(dataset_, i, detail::substream(stream, 0));
    const auto [y, u] = detail::sample_of(dataset_, j, detail::substream(stream, 1));
    using T = typename std::remove_cvref_t<decltype(x)>::value_type;
    using target = std::remove_cvref_t<decltype(t)>;
    if constexpr (std::is_integral_v<target>) {
      for (const auto label : {t, u})
        if (label < 0 || label >= Classes)
          throw error("mixup: label " + std::to_string(label) + " is not one of " +
                      std::to_string(Classes) + " classes");
      tensor<T, shape{Classes}> mixed;
      mixed[t] += static_cast<T>(share);
      mixed[u] += static_cast<T>(1 - share);
      return std::tuple(blend(x, y, share), std::move(mixed));
    } else if constexpr (std::is_floating_point_v<target>) {
      return std::tuple(blend(x, y, share),
                        static_cast<target>(share * static_cast<double>(t) +
                                            (1 - share) * static_cast<double>(u)));
    } else {
      return std::tuple(blend(x, y, share), blend(t, u, share));
    }
  }

 private:
  template <class X>
  static auto blend(const X& x, const X& y, double share) {
    using T = typename X::value_type;
    static_assert(std::is_floating_point_v<T> && X::static_shape.is_static(),
                  "ikebana: mixup takes tensors of floating-point numbers and static shape");
    tensor<T, X::static_shape> out;
    for (dim_t i = 0; i < out.size(); ++i)
      out.data()[i] = static_cast<T>(share) * x.data()[i] + static_cast<T>(1 - share) * y.data()[i];
    return out;
  }

  Dataset dataset_;
  double alpha_;
};

/// A dataset whose sample i is a mixture of sample i and another one, drawn at random: x = s x_i +
/// (1 - s) x_j with s of Beta(alpha, alpha), and targets accordingly; labels become probabilities
/// [Classes], which cross_entropy takes (Zhang, Cisse, Dauphin, Lopez-Paz, mixup: Beyond Empirical
/// Risk Minimization, 2018). Samples are pairs (x, target). Throws error if alpha is not positive;
/// reading throws error for a label that is no class. Allocates each sample.
template <dim_t Classes = 0, class Dataset>
auto mixup(Dataset&& dataset, double alpha) {
  return mixup_dataset<Classes, Dataset>(std::forward<Dataset>(dataset), alpha);
}

}  // namespace ikebana
