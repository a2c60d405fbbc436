#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

namespace detail {

/// The running statistics of a batch norm, and the means of the batches' statistics so far.
template <class T>
struct batch_statistics {
  T *mean, *var;
  std::int64_t* batches;
  dim_t channels;
  double factor;  ///< The share of a batch in the running statistics, which begin at 0.
  std::vector<double> means, vars;

  void clear() {
    std::fill_n(mean, channels, T{0});
    std::fill_n(var, channels, T{0});
    *batches = 0;
  }
  void take(std::int64_t n) {
    for (std::size_t i = 0; i < means.size(); ++i) {
      means[i] += (static_cast<double>(mean[i]) / factor - means[i]) / static_cast<double>(n);
      vars[i] += (static_cast<double>(var[i]) / factor - vars[i]) / static_cast<double>(n);
    }
  }
  void give(std::int64_t n) {
    for (std::size_t i = 0; i < means.size(); ++i) {
      mean[i] = static_cast<T>(means[i]);
      var[i] = static_cast<T>(vars[i]);
    }
    *batches = n;
  }
};

/// Finds the batch norms of a model, in the order of forward.
template <class Model>
struct find_batch_norms {
  using T = typename Model::value_type;
  Model& model;
  std::vector<batch_statistics<T>>& found;
  std::size_t node = 0;

  template <class Leaf>
  void operator()(const Leaf& leaf) {
    const auto& p = model.current_program();
    const auto l = static_cast<std::size_t>(p.nodes[node].leaf);
    bool is_first = true;
    for (std::size_t k = 0; k < node; ++k)
      is_first = is_first && p.nodes[k].leaf != p.nodes[node].leaf;
    ++node;
    if constexpr (
        requires {
          leaf.momentum;
          Leaf::tracks;
        } &&
        !requires { Leaf::is_frozen; }) {
      if (!is_first || !Leaf::tracks || Leaf::kind.find("batch_norm") == Leaf::kind.npos) return;
      const double momentum = leaf.momentum.value_or(1);
      if (momentum == 0)
        throw error(std::string(p.path(p.leaves[l]).c_str()) +
                    ": update_bn cannot find the statistics of batches with momentum = 0");
      const auto first = static_cast<std::size_t>(p.leaves[l].first_buffer);
      const auto at = [&](std::size_t i) {
        return model.buffers().data() + model.layout().buffer_offsets[first + i];
      };
      const dim_t channels = p.buffers[first].spec.extents.numel();
      found.push_back({.mean = reinterpret_cast<T*>(at(0)),
                       .var = reinterpret_cast<T*>(at(1)),
                       .batches = reinterpret_cast<std::int64_t*>(at(2)),
                       .channels = channels,
                       .factor = momentum,
                       .means = std::vector<double>(static_cast<std::size_t>(channels)),
                       .vars = std::vector<double>(static_cast<std::size_t>(channels))});
    }
  }
};

template <class Model>
concept has_running_statistics = requires(Model& m) {
  typename Model::value_type;
  m.module();
  m.train(m.is_training());
};

namespace misuse {
IKEBANA_MISUSE(update_bn_takes_batches_and_a_model,
               "update_bn takes batches and an initialized model: update_bn(loader, "
               "average.module())");
}  // namespace misuse

}  // namespace detail

/// Sets the running statistics of all batch norms to the means over the batches of a loader, as
/// PyTorch's swa_utils.update_bn: averaged weights have other activations than those that the
/// statistics were taken of. `update_bn(loader, average.module());` One forward in training mode
/// per batch; the mode is restored. Throws error, before anything has changed, for a batch norm
/// with momentum 0. Allocates.
template <class Loader, detail::has_running_statistics Model>
void update_bn(Loader&& loader, Model& model) {
  std::vector<detail::batch_statistics<typename Model::value_type>> all;
  detail::find_batch_norms<Model> find{model, all};
  detail::for_each_leaf(model.module(), find);
  if (all.empty()) return;
  const bool was_training = model.is_training();
  model.train();
  std::int64_t n = 0;
  for (auto&& [x, target] : loader) {
    static_cast<void>(target);
    for (auto& s : all) s.clear();
    model(x);
    ++n;
    for (auto& s : all) s.take(n);
  }
  if (n > 0)
    for (auto& s : all) s.give(n);
  model.train(was_training);
}

template <class Loader, class Other>
requires(!detail::has_running_statistics<Other>) auto update_bn(Loader&&, Other&&)
    -> decltype(detail::refuse_for<detail::misuse::update_bn_takes_batches_and_a_model, Other>());

}  // namespace ikebana
