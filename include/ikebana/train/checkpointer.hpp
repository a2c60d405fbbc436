#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/io/data_loader.hpp"
#include "ikebana/io/safetensors.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/model/state/state_comparison.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/optim/grad_scaler.hpp"
#include "ikebana/optim/reduce_lr_on_plateau.hpp"
#include "ikebana/train/training_state.hpp"

namespace ikebana {

/// Options of checkpointer.
struct checkpointer_options {
  std::int64_t keep = 3;                ///< The number of checkpoints that stay, the newest.
  metric_mode mode = metric_mode::min;  ///< Whether the least metric is the best, or the largest.
};

namespace detail {

inline constexpr std::string_view run_prefix = "run.", run_note = "ikebana.checkpoint";
inline constexpr int run_version = 1;

template <class P>
concept is_scheduler_part = requires(P& p) {
  p.state();
  p.restored();
};
template <class P>
concept is_loader_part = requires(P& p) {
  p.set_position(p.position());
  p.options().shard;
};
template <class P>
concept is_average_part = requires(P& p) {
  p.module();
  p.set_n_averaged(p.n_averaged());
};
template <class P>
concept is_scaler_part = requires(P& p) {
  p.load_state(p.state());
  p.state().growth_tracker;
};
template <class P>
concept run_part =
    is_scheduler_part<P> || is_loader_part<P> || is_average_part<P> || is_scaler_part<P>;

/// Checkpoints of a directory, by number.
template <class = void>
std::vector<std::pair<std::int64_t, std::filesystem::path>> checkpoints_in(
    const std::filesystem::path& directory) {
  std::vector<std::pair<std::int64_t, std::filesystem::path>> all;
  std::error_code none;
  for (std::filesystem::directory_iterator i(directory, none), end; !none && i != end;
       i.increment(none)) {
    constexpr std::string_view before = "checkpoint-", after = ".safetensors";
    const std::string name = i->path().filename().string();
    if (!name.starts_with(before) || !name.ends_with(after)) continue;
    const std::string digits =
        name.substr(before.size(), name.size() - before.size() - after.size());
    if (digits.empty() || digits.size() > 18 ||
        digits.find_first_not_of("0123456789") != std::string::npos)
      continue;
    all.emplace_back(std::strtoll(digits.c_str(), nullptr, 10), i->path());
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace detail

/// The checkpoints of a run, in a directory of its own:
///
///     ike::checkpointer run{"run/", model, optimizer, schedule, loader, average};
///     run.resume();
///     while (loader.epoch() < 20)
///       for (auto [x, t] : loader) {
///         model.train_step(x, t, loss, optimizer);
///         ..
///         if (++steps % 1000 == 0) run.save();
///       }
///
/// A checkpoint is a file, `checkpoint-00000012.safetensors`, that appears completely or not at
/// all, with everything that training needs to go on with the same bits: what get_training_state
/// contains, and the state of each further part in any order, at most one of each kind: a scheduler
/// (lr_scheduler, reduce_lr_on_plateau), a data_loader's position, an averaged_model, a
/// grad_scaler. All must outlive the checkpointer, and not move.
///
/// With replicas, all ranks must call save; rank 0 writes. A run may be resumed with another number
/// of ranks, if the batches of all ranks together have the same size. The state of communication
/// hooks is not saved.
template <class Model, class Optimizer, class... Parts>
class checkpointer {
  static_assert((detail::run_part<Parts> && ...),
                "ikebana: checkpointer takes a directory, a model, its optimizer, and schedulers, "
                "data loaders, averaged models and gradient scalers");
  static_assert(
      (0 + ... + int{detail::is_scheduler_part<Parts>}) <= 1 &&
          (0 + ... + int{detail::is_loader_part<Parts>}) <= 1 &&
          (0 + ... + int{detail::is_average_part<Parts>}) <= 1 &&
          (0 + ... + int{detail::is_scaler_part<Parts>}) <= 1,
      "ikebana: checkpointer takes at most one scheduler, data loader, averaged model and "
      "gradient scaler each");

 public:
  /// Makes the directory. Throws io_error if that fails, error for a `keep` below 1.
  checkpointer(const std::filesystem::path& directory, const checkpointer_options& options,
               Model& model, Optimizer& optimizer, Parts&... parts)
      : directory_{directory},
        options_{options},
        model_{&model},
        optimizer_{&optimizer},
        parts_{parts...} {
    detail::check_option(options.keep >= 1, "checkpointer", "keep",
                         static_cast<double>(options.keep));
    std::error_code wrong;
    std::filesystem::create_directories(directory_, wrong);
    if (wrong)
      throw io_error(directory_.string() + ": cannot make the directory: " + wrong.message());
  }
  checkpointer(const std::filesystem::path& directory, Model& model, Optimizer& optimizer,
               Parts&... parts)
      : checkpointer(directory, checkpointer_options{}, model, optimizer, parts...) {}

  /// Writes a checkpoint and removes those that are too old. Throws io_error; then the older ones
  /// are still there. Allocates. O(parameters).
  void save() { save_with({}); }
  /// The same at the end of an epoch with this metric, such as the validation loss. If it is the
  /// best so far, the checkpoint also becomes `best.safetensors`. A NaN is not.
  void save(double metric) { save_with(metric); }

  /// Loads the newest checkpoint. Returns whether there was one. Throws state_error, before
  /// anything has changed, if it is that of another model, optimizer or set of parts, or if options
  /// of the optimizer differ, unless `options` says otherwise (see load_training_state).
  bool resume(saved_options options = saved_options::compare) {
    const auto all = detail::checkpoints_in(directory_);
    if (all.empty()) return false;
    restore(load(all.back().second), options);
    saved_ = all.back().first;
    return true;
  }

  /// Loads the parameters and buffers of the best checkpoint into the model. Returns whether there
  /// was one. Throws state_error before anything has changed.
  bool load_best() {
    if (!std::filesystem::exists(best_path())) return false;
    const state_dict dict = load(best_path());
    state_view model;
    for (const auto& e : dict)
      if (e.name.starts_with(detail::model_prefix))
        model.add_view(e.name.substr(detail::model_prefix.size()), e.type, e.extents,
                       e.bytes.data());
    model.set_metadata({dict.metadata().begin(), dict.metadata().end()});
    load_state_dict(*model_, model);
    return true;
  }

  /// The best metric so far.
  std::optional<double> best() const { return best_; }
  /// The number of checkpoints that the run has written, removed ones included.
  std::int64_t saved() const { return saved_; }
  std::filesystem::path best_path() const { return directory_ / "best.safetensors"; }

 private:
  void save_with(std::optional<double> metric) {
    const bool is_best =
        metric && *metric == *metric &&
        (!best_ || (options_.mode == metric_mode::min ? *metric < *best_ : *metric > *best_));
    const std::optional<double> before = best_;
    if (is_best) best_ = metric;
    try {
      const state_view state = view();
      if (is_writer()) {
        char name[64];
        std::snprintf(name, sizeof name, "checkpoint-%08lld.safetensors",
                      static_cast<long long>(saved_ + 1));
        ikebana::save(state, directory_ / name);
        if (is_best) ikebana::save(state, best_path());
      }
    } catch (...) {
      best_ = before;
      throw;
    }
    ++saved_;
    if (!is_writer()) return;
    const auto all = detail::checkpoints_in(directory_);
    for (std::size_t i = 0; i + static_cast<std::size_t>(options_.keep) < all.size(); ++i) {
      std::error_code ignored;
      std::filesystem::remove(all[i].second, ignored);
    }
  }

  bool is_writer() const {
    if constexpr (requires { model_->group().rank(); })
      return model_->group().rank() == 0;
    else
      return true;
  }

  /// Calls f(part) for each part.
  template <class F>
  void each_part(F&& f) {
    std::apply([&](auto&... part) { (f(part), ...); }, parts_);
  }

  /// Calls f(name, type, extents, bytes) for what the file contains besides the training state.
  template <class F>
  void each_entry(F&& f) {
    const auto numbers = [&]<class X, std::size_t N>(const char* name, std::array<X, N> values) {
      f(std::string(detail::run_prefix) + name, dtype_of<X>, shape{static_cast<dim_t>(N)},
        std::as_bytes(std::span{values}));
    };
    numbers("best", std::array{best_.value_or(std::numeric_limits<double>::quiet_NaN())});
    each_part([&]<class P>(P& part) {
      if constexpr (detail::is_loader_part<P>) {
        const loader_position at = part.position();
        numbers("loader", std::array<std::int64_t, 2>{at.epoch, at.batch * samples_of(part)});
      } else if constexpr (detail::is_average_part<P>) {
        numbers("n_averaged", std::array<std::int64_t, 1>{part.n_averaged()});
        for (const auto& e : get_state_dict(part.module()))
          f(std::string(average_prefix) + e.name, e.type, e.extents, e.bytes);
      } else if constexpr (detail::is_scaler_part<P>) {
        numbers("scale", std::array{part.state().scale});
        numbers("growth_tracker", std::array<std::int64_t, 1>{part.state().growth_tracker});
      }
    });
  }
  static constexpr std::string_view average_prefix = "run.average.";

  /// The samples of a batch of all ranks.
  template <class Loader>
  static std::int64_t samples_of(const Loader& loader) {
    return static_cast<std::int64_t>(loader.options().batch * loader.options().shard.size);
  }

  /// Calls f(scheduler), with the stand-in of training states if there is none.
  template <class F>
  void with_scheduler(F&& f) {
    each_part([&]<class P>(P& part) {
      if constexpr (detail::is_scheduler_part<P>) f(part);
    });
    detail::no_scheduler none;
    if constexpr (!(detail::is_scheduler_part<Parts> || ...)) f(none);
  }

  state_view view() {
    state_view all;
    with_scheduler(
        [&](auto& scheduler) { all = get_training_state(*model_, *optimizer_, scheduler); });
    each_entry([&](const std::string& name, dtype type, const shape& extents,
                   std::span<const std::byte> bytes) {
      if (std::byte* to = all.add_owned(name, type, extents))
        std::memcpy(to, bytes.data(), bytes.size());
    });
    all.set_metadata(detail::run_note, std::to_string(detail::run_version));
    return all;
  }

  void restore(const state_dict& dict, saved_options options) {
    const std::string* note = dict.find_metadata(detail::run_note);
    if (note == nullptr || *note != std::to_string(detail::run_version))
      throw state_error("checkpointer: expected a checkpoint of version " +
                        std::to_string(detail::run_version) + ", got " +
                        (note == nullptr ? "what is none" : "version " + *note));
    state_view training, own, expected;
    for (const auto& e : dict)
      (e.name.starts_with(detail::run_prefix) ? own : training)
          .add_view(e.name, e.type, e.extents, e.bytes.data());
    training.set_metadata({dict.metadata().begin(), dict.metadata().end()});
    each_entry(
        [&](const std::string& name, dtype type, const shape& extents, std::span<const std::byte>) {
          expected.add_uninitialized(name, type, extents);
        });
    detail::state_complaint wrong;
    wrong.compare(expected, own, true);
    wrong.throw_if_any();
    each_part([&]<class P>(P& part) {
      if constexpr (detail::is_loader_part<P>) {
        check_position(part, own);
      } else if constexpr (detail::is_scaler_part<P>) {
        P other = part;
        load_scale(other, own);
      } else if constexpr (detail::is_average_part<P>) {
        if (integer(own, "n_averaged", 0) < 0)
          throw state_error("run.n_averaged: expected a number of updates, got " +
                            std::to_string(integer(own, "n_averaged", 0)));
      }
    });
    with_scheduler([&](auto& scheduler) {
      load_training_state(*model_, *optimizer_, scheduler, training, options);
    });
    each_part([&]<class P>(P& part) {
      if constexpr (detail::is_loader_part<P>) {
        part.set_position(check_position(part, own));
      } else if constexpr (detail::is_scaler_part<P>) {
        load_scale(part, own);
      } else if constexpr (detail::is_average_part<P>) {
        state_view average;
        for (const auto& e : own)
          if (e.name.starts_with(average_prefix))
            average.add_view(e.name.substr(average_prefix.size()), e.type, e.extents,
                             e.bytes.data());
        load_state_dict(part.module(), average);
        part.set_n_averaged(integer(own, "n_averaged", 0));
      }
    });
    const double best = number(own, "best");
    best_ = best == best ? std::optional{best} : std::nullopt;
  }

  static std::int64_t integer(const state_dict& own, const char* name, std::size_t i) {
    std::int64_t n;
    std::memcpy(&n, own.at(std::string(detail::run_prefix) + name).bytes.data() + i * sizeof n,
                sizeof n);
    return n;
  }
  static double number(const state_dict& own, const char* name) {
    return detail::saved_numbers(own.at(std::string(detail::run_prefix) + name)).at(0);
  }
  template <class Scaler>
  static void load_scale(Scaler& scaler, const state_dict& own) {
    auto state = scaler.state();
    state.scale = number(own, "scale");
    state.growth_tracker = integer(own, "growth_tracker", 0);
    scaler.load_state(state);
  }
  /// The position of a loader, whose batches of all ranks may have another size than those of the
  /// loader that was saved.
  template <class Loader>
  static loader_position check_position(const Loader& loader, const state_dict& own) {
    const std::int64_t epoch = integer(own, "loader", 0), samples = integer(own, "loader", 1),
                       size = samples_of(loader);
    if (epoch < 0 || samples < 0 || samples % size != 0 ||
        (samples > 0 && samples / size >= static_cast<std::int64_t>(loader.size())))
      throw state_error("run.loader: the loader has no batch that begins at sample " +
                        std::to_string(samples) + " of epoch " + std::to_string(epoch) +
                        ": its batches have " + std::to_string(size) + " samples on all ranks");
    return {static_cast<dim_t>(epoch), static_cast<dim_t>(samples / size)};
  }

  std::filesystem::path directory_;
  checkpointer_options options_;
  Model* model_;
  Optimizer* optimizer_;
  std::tuple<Parts&...> parts_;
  std::optional<double> best_;
  std::int64_t saved_ = 0;
};
template <class Model, class Optimizer, class... Parts>
checkpointer(const std::filesystem::path&, Model&, Optimizer&, Parts&...)
    -> checkpointer<Model, Optimizer, Parts...>;
template <class Model, class Optimizer, class... Parts>
checkpointer(const std::filesystem::path&, const checkpointer_options&, Model&, Optimizer&,
             Parts&...) -> checkpointer<Model, Optimizer, Parts...>;

}  // namespace ikebana
