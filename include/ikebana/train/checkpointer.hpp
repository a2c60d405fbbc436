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
#include "ikebana/module/refusal.hpp"
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

template <class M>
concept keeps_module = requires(const M& m) {
  m.module();
};

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

namespace misuse {
IKEBANA_MISUSE(checkpointer_takes_a_directory_a_model_and_its_optimizer,
               "checkpointer takes a directory, a model, its optimizer, and schedulers, data "
               "loaders, averaged models and gradient scalers, which outlive it: "
               "checkpointer{\"run/\", model, optimizer, loader}");
}  // namespace misuse

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
/// With replicas, all ranks must call save; rank 0 writes. The state of the model's communication
/// hook is part of it: powersgd's errors, of each rank. A run may be resumed with another number of
/// ranks, if the batches of all ranks together have the same size; then each rank gets the mean of
/// the errors.
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
  static constexpr std::string_view average_prefix = "run.average.", hook_prefix = "run.hook.",
                                    ranks_name = "run.ranks";

  /// Whether the model's communication hook has a state, such as the errors of powersgd.
  static constexpr bool has_hook = requires(Model & m, state_view& v, const state_dict& d) {
    m.group().rank();
    m.hook().save(v, std::string_view{});
    m.hook().load(d, std::string_view{});
  };
  /// Each rank has errors of its own: they are saved as [ranks, elements].
  static bool is_of_rank(std::string_view name) { return name.ends_with(".error"); }

  void add_hook(state_view& to) {
    if constexpr (has_hook) {
      auto& group = model_->group();
      state_view own;
      model_->hook().save(own, hook_prefix);
      for (const auto& e : own) {
        const bool gathers = is_of_rank(e.name);
        std::byte* const all = to.add_owned(
            e.name, e.type, gathers ? shape{group.size(), e.extents.numel()} : e.extents);
        if (e.bytes.empty()) continue;
        if (gathers)
          group.all_gather(e.bytes, std::span<std::byte>{all, e.bytes.size() * ranks()});
        else
          std::memcpy(all, e.bytes.data(), e.bytes.size());
      }
      const auto size = static_cast<std::int64_t>(ranks());
      std::memcpy(to.add_owned(std::string(ranks_name), dtype::int64, shape{}), &size, sizeof size);
    }
  }

  std::size_t ranks() const {
    if constexpr (has_hook)
      return static_cast<std::size_t>(model_->group().size());
    else
      return 1;
  }

  /// What a file has to contain of a hook; of the errors, those of as many ranks as it says.
  void expect_hook(state_view& expected, const state_dict& own) {
    if constexpr (has_hook) {
      state_view mine;
      model_->hook().save(mine, hook_prefix);
      std::int64_t saved = 0;
      if (const auto* e = own.find(std::string(ranks_name));
          e != nullptr && e->type == dtype::int64 && e->bytes.size() == sizeof saved)
        std::memcpy(&saved, e->bytes.data(), sizeof saved);
      for (const auto& e : mine)
        expected.add_uninitialized(
            e.name, e.type,
            is_of_rank(e.name) ? shape{saved < 1 ? 1 : saved, e.extents.numel()} : e.extents);
      expected.add_uninitialized(std::string(ranks_name), dtype::int64, shape{});
    }
  }

  /// Loads a hook's state: of as many ranks as before, each its own errors; otherwise each their
  /// mean, so that the next average of all ranks is the same.
  void load_hook(const state_dict& own) {
    if constexpr (has_hook) {
      state_view mine, given;
      model_->hook().save(mine, hook_prefix);
      for (const auto& e : mine) {
        const auto& from = own.at(e.name);
        if (!is_of_rank(e.name)) {
          given.add_view(e.name, e.type, e.extents, from.bytes.data());
          continue;
        }
        const auto saved = static_cast<std::size_t>(from.extents[0]);
        if (saved == ranks()) {
          given.add_view(e.name, e.type, e.extents,
                         from.bytes.data() +
                             static_cast<std::size_t>(model_->group().rank()) * e.bytes.size());
          continue;
        }
        const auto all = detail::saved_numbers(from);
        const std::size_t n = all.size() / saved;
        std::byte* const to = given.add_owned(e.name, e.type, e.extents);
        for (std::size_t i = 0; i < n; ++i) {
          double sum = 0;
          for (std::size_t r = 0; r < saved; ++r) sum += all[r * n + i];
          const double mean = sum / static_cast<double>(saved);
          if (e.type == dtype::float64) {
            std::memcpy(to + i * sizeof mean, &mean, sizeof mean);
          } else {
            const auto single_mean = static_cast<float>(mean);
            std::memcpy(to + i * sizeof single_mean, &single_mean, sizeof single_mean);
          }
        }
      }
      model_->hook().load(given, hook_prefix);
    }
  }

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
    add_hook(all);
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
    expect_hook(expected, own);
    detail::state_complaint wrong;
    wrong.compare(expected, own, true);
    wrong.throw_if_any();
    for (const auto& e : own)
      if (e.name == std::string(hook_prefix) + "iteration") detail::check_counters(e);
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
    load_hook(own);
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
requires(detail::keeps_module<Model>)
    checkpointer(const std::filesystem::path&, Model&, Optimizer&, Parts&...)
->checkpointer<Model, Optimizer, Parts...>;
template <class Model, class Optimizer, class... Parts>
requires(detail::keeps_module<Model>)
    checkpointer(const std::filesystem::path&, const checkpointer_options&, Model&, Optimizer&,
                 Parts&...)
->checkpointer<Model, Optimizer, Parts...>;

// A refusal at compile time, selected by the deduction guide.
template <class Misuse>
class checkpointer<Misuse, void>;
template <bool Lazy = false>
checkpointer(...)
    -> checkpointer<detail::misuse::checkpointer_takes_a_directory_a_model_and_its_optimizer<Lazy>,
                    void>;
template <class Model, class Optimizer, class... Parts>
requires(!detail::keeps_module<Model> && detail::keeps_module<Optimizer>)
    checkpointer(const std::filesystem::path&, Model&, Optimizer&, Parts&...)
->checkpointer<
    detail::misuse::checkpointer_takes_a_directory_a_model_and_its_optimizer<detail::later<Model>>,
    void>;

}  // namespace ikebana
