#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/calls/optimizer_check.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/optim/group.hpp"
#include "ikebana/optim/optimizer.hpp"
#include "ikebana/optim/optimizer_options.hpp"
#include "ikebana/optim/optimizer_state_dict.hpp"

namespace ikebana {

namespace detail {

inline constexpr std::string_view model_prefix = "model.", random_name = "random",
                                  options_prefix = "optimizer.options.",
                                  groups_prefix = "optimizer.groups.",
                                  initial_lr_name = "lr_scheduler.initial_lr",
                                  initial_group_lr_name = "lr_scheduler.initial_group_lr",
                                  training_note = "ikebana.training_state";

/// The version of the names and their meaning, in __metadata__. Version 2 added the options;
/// earlier states have no version.
inline constexpr int training_version = 2;

/// Calls f(name, type, option) for every option of the optimizer that the updates depend on.
template <class Optimizer, class F>
void for_each_saved_option(Optimizer& optimizer, F&& f) {
  const auto visit = [&](const std::string& prefix, auto& options) {
    for_each_option(options, [&]<class V>(const char* name, V& option) {
      f(prefix + name, std::is_same_v<std::remove_const_t<V>, bool> ? dtype::uint8 : dtype::float64,
        option);
    });
  };
  if constexpr (requires { optimizer.options(); })
    visit(std::string(options_prefix), optimizer.options());
  for (parameter_group& g : groups_of(optimizer))
    visit(std::string(groups_prefix) + g.name + '.', g.options);
}

template <class = void>
std::string number_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", x);
  for (int digits = 1; digits < 17; ++digits) {
    char shorter[32];
    std::snprintf(shorter, sizeof shorter, "%.*g", digits, x);
    if (std::strtod(shorter, nullptr) == x) return shorter;
  }
  return text;
}

/// The value of an option in a state.
template <class = void>
double saved_option(const state_dict::entry& e) {
  if (e.type == dtype::uint8) return std::to_integer<int>(e.bytes[0]);
  double number;
  copy_elements(reinterpret_cast<std::byte*>(&number), dtype::float64, e);
  return number;
}

/// All numbers of an entry.
template <class Number = double>
std::vector<Number> saved_numbers(const state_dict::entry& e) {
  std::vector<Number> numbers(static_cast<std::size_t>(e.extents.numel()));
  copy_elements(reinterpret_cast<std::byte*>(numbers.data()), dtype::float64, e);
  return numbers;
}

/// In place of a scheduler, if there is none.
struct no_scheduler {};

/// Calls f(name, type, bytes) for each part of a scheduler's state: "lr_scheduler.last_epoch".
template <class Scheduler, class F>
void for_each_scheduler_state([[maybe_unused]] Scheduler& scheduler, [[maybe_unused]] F&& f) {
  if constexpr (!std::is_same_v<Scheduler, no_scheduler>)
    for (const optimizer_state& s : scheduler.state())
      if (s.in_use)
        f("lr_scheduler." + std::string(s.name), s.type, s.bytes,
          s.name.ends_with("_group_lr") ? shape{s.bytes.size() / sizeof(double)} : shape{});
}

/// Whether the scheduler sets this option of the optimizer at each step.
template <class Scheduler>
bool is_scheduled([[maybe_unused]] const Scheduler& scheduler, std::string_view name) {
  if constexpr (std::is_same_v<Scheduler, no_scheduler>) {
    return false;
  } else {
    name.remove_prefix(name.rfind('.') + 1);
    if (name == "lr") return true;
    if constexpr (requires { scheduler.changes_momentum(); })
      return scheduler.changes_momentum() && (name == "momentum" || name == "beta1");
    return false;
  }
}

/// Throws state_error if the saved numbers are not learning rates, or the schedule has no such
/// step.
template <class Scheduler>
void check_saved_schedule([[maybe_unused]] Scheduler& scheduler,
                          [[maybe_unused]] const state_dict& given) {
  for_each_scheduler_state(
      scheduler, [&](const std::string& name, dtype type, std::span<std::byte>, const shape&) {
        if (type != dtype::float64) return;
        for (const double number : saved_numbers(given.at(name)))
          if (number != number || (name.ends_with("_lr") && number < 0))
            throw state_error(name + ": expected a number from 0 on, got " + number_text(number));
      });
  if constexpr (requires { scheduler.schedule(); }) {
    std::int64_t step;
    std::memcpy(&step, given.at("lr_scheduler.last_epoch").bytes.data(), sizeof step);
    try {
      scheduler.schedule().lr(1, step);
    } catch (const error& e) {
      throw state_error(std::string("load_training_state: ") + e.what());
    }
  }
}

/// Throws a state_error that lists all options that differ from the saved ones.
/// A scheduler sets the learning rate, and maybe the momentum, at each step: the optimizer's
/// present ones do not matter, the rate that the scheduler started from does.
template <class Optimizer, class Scheduler>
void compare_options(Optimizer& optimizer, Scheduler& scheduler, const state_dict& given) {
  state_complaint wrong;
  for_each_saved_option(optimizer, [&](const std::string& name, dtype, auto option) {
    const auto* e = given.find(name);
    if (e == nullptr || is_scheduled(scheduler, name)) return;
    const auto own = static_cast<double>(option), saved = saved_option(*e);
    if (own == saved || (own != own && saved != saved)) return;
    wrong.add_mismatched(name, number_text(own), number_text(saved));
  });
  if constexpr (requires { scheduler.initial_lr(); }) {
    const double own = scheduler.initial_lr(), saved = saved_option(given.at(initial_lr_name));
    if (own != saved)
      wrong.add_mismatched(std::string(initial_lr_name), number_text(own), number_text(saved));
    if constexpr (requires { scheduler.initial_group_lrs(); }) {
      const auto* groups = given.find(initial_group_lr_name);
      const auto all = groups == nullptr ? std::vector<double>{} : saved_numbers(*groups);
      for (std::size_t i = 0; i < all.size(); ++i)
        if (scheduler.initial_group_lrs()[i] != all[i])
          wrong.add_mismatched(std::string(initial_group_lr_name),
                               number_text(scheduler.initial_group_lrs()[i]), number_text(all[i]));
    }
  }
  if (!wrong.lists().empty())
    wrong.say_first(
        "the optimizer has other options (saved_options::restore takes those saved, ignore keeps "
        "its "
        "own)");
  wrong.throw_if_any();
}

template <class Optimizer>
void restore_options(Optimizer& optimizer, const state_dict& given) {
  for_each_saved_option(optimizer, [&]<class V>(const std::string& name, dtype, V& option) {
    if (const auto* e = given.find(name)) option = static_cast<V>(saved_option(*e));
  });
}

/// Throws state_error with the optimizer's message if the saved options are invalid.
template <class Optimizer>
void check_saved_options(Optimizer& optimizer, const state_dict& given) {
  if constexpr (requires { optimizer.check_options(); }) {
    const auto own = optimizer.options();
    const auto groups = groups_of(optimizer);
    const std::vector<dependent<parameter_group, Optimizer>> own_groups(groups.begin(),
                                                                        groups.end());
    const auto put_back = [&] {
      optimizer.options() = own;
      std::copy(own_groups.begin(), own_groups.end(), groups.begin());
    };
    restore_options(optimizer, given);
    try {
      optimizer.check_options();
    } catch (const error& e) {
      put_back();
      throw state_error(std::string("load_training_state: ") + e.what());
    }
    put_back();
  }
}

enum class state_use { names, read, write };

/// Calls f(name, type, extents, bytes) for the whole state of an optimizer. Arrays that are laid
/// out like the parameters are split by parameter: "optimizer.exp_avg.fc1.weight". If ranks share
/// the optimizer's work, `bytes` is a temporary array valid during the call: for `read` it holds
/// the gathered parts of all ranks, for `write` this rank's part is copied from it afterwards.
template <class Model, class Optimizer, class F>
void for_each_optimizer_state(Model& m, Optimizer& optimizer, [[maybe_unused]] state_use use,
                              F&& f) {
  using T = typename Model::value_type;
  const auto& p = m.current_program();
  const auto& layout = m.layout();
  if constexpr (sharded_optimizable<Model>) {
    const auto size = static_cast<std::size_t>(layout.parameter_elements) * sizeof(T);
    for (const optimizer_state& state : optimizer.state()) {
      if (!state.in_use) continue;
      const std::string name = "optimizer." + std::string(state.name);
      if (!is_elementwise<T>(state)) {
        f(name, state.type, shape{static_cast<dim_t>(state.bytes.size() / size_of(state.type))},
          state.bytes);
        continue;
      }
      aligned_buffer<T> whole = use == state_use::read
                                    ? gather_state(m, state)
                                    : aligned_buffer<T>(layout.parameter_elements);
      for (std::size_t i = 0; size > 0 && i < p.all_parameters().size(); ++i) {
        const auto& parameter = p.all_parameters()[i];
        const shape& extents = parameter.spec.extents;
        f(name + '.' + p.path(parameter).c_str(), state.type, extents,
          std::as_writable_bytes(whole.span().subspan(static_cast<std::size_t>(layout.offsets[i]),
                                                      static_cast<std::size_t>(extents.numel()))));
      }
      if (use == state_use::write) take_state(m, state, whole);
    }
    return;
  }
  for (const optimizer_state& state : optimizer.state()) {
    if (state.bytes.empty()) continue;
    const std::size_t element = size_of(state.type);
    const std::string name = "optimizer." + std::string(state.name);
    for (const optimizer_state_part& part : state.parts)
      f(name + '.' + p.path(p.all_parameters()[part.parameter]).c_str(), state.type, part.extents,
        bytes_of(state, part));
    if (state.is_in_parts) continue;
    if (state.bytes.size() / element != static_cast<std::size_t>(layout.parameter_elements)) {
      f(name, state.type, shape{state.bytes.size() / element}, state.bytes);
      continue;
    }
    for (std::size_t i = 0; i < p.all_parameters().size(); ++i) {
      const auto& parameter = p.all_parameters()[i];
      const shape& extents = parameter.spec.extents;
      f(name + '.' + p.path(parameter).c_str(), state.type, extents,
        state.bytes.subspan(static_cast<std::size_t>(layout.offsets[i]) * element,
                            static_cast<std::size_t>(extents.numel()) * element));
    }
  }
}

}  // namespace detail

/// Everything needed to resume training with the same bits: parameters and buffers
/// ("model.fc1.weight"), the optimizer's state ("optimizer.exp_avg.fc1.weight", "optimizer.step")
/// and options ("optimizer.options.lr", "optimizer.groups.head.lr"), and the position in the random
/// streams ("random": the seed, its path, the step). The position in the data is the caller's
/// responsibility. Entries of parameters, buffers and the optimizer's state are views: `save` the
/// dict, or `clone()` it. If all ranks of a replica agree, any rank's state will do; with
/// shard_optimizer all ranks must call it, and the parts of the optimizers are gathered. Allocates.
/// Throws state_error if the optimizer belongs to another model.
///
/// With a scheduler (lr_scheduler, reduce_lr_on_plateau) also its state
/// ("lr_scheduler.last_epoch").
template <initialized_model Model, class Optimizer, class Scheduler = detail::no_scheduler>
state_view get_training_state(Model& m, Optimizer& optimizer, Scheduler&& scheduler = {}) {
  detail::check_optimizer(m, optimizer, "get_training_state");
  state_view dict;
  const state_view model = get_state_dict(m);
  for (const auto& e : model)
    dict.add_view(std::string(detail::model_prefix) + e.name, e.type, e.extents, e.bytes.data());
  dict.set_metadata({model.metadata().begin(), model.metadata().end()});
  dict.set_metadata(detail::training_note, std::to_string(detail::training_version));
  detail::for_each_optimizer_state(
      m, optimizer, detail::state_use::read,
      [&](const std::string& name, dtype type, const shape& extents, std::span<std::byte> bytes) {
        if constexpr (!sharded_optimizable<Model>)
          dict.add_view(name, type, extents, bytes.data());
        else if (std::byte* to = dict.add_owned(name, type, extents))
          std::memcpy(to, bytes.data(), bytes.size());
      });
  detail::for_each_saved_option(optimizer, [&](const std::string& name, dtype type, auto option) {
    std::byte* to = dict.add_owned(name, type, shape{});
    const auto number = static_cast<double>(option);
    if (type == dtype::uint8)
      *to = static_cast<std::byte>(number != 0);
    else
      std::memcpy(to, &number, sizeof number);
  });
  detail::for_each_scheduler_state(
      scheduler,
      [&](const std::string& name, dtype type, std::span<std::byte> bytes, const shape& extents) {
        std::memcpy(dict.add_owned(name, type, extents), bytes.data(), bytes.size());
      });
  const std::array<std::int64_t, 3> random{std::bit_cast<std::int64_t>(m.seed().value),
                                           std::bit_cast<std::int64_t>(m.seed().path),
                                           static_cast<std::int64_t>(m.random_step())};
  std::memcpy(dict.add_owned(detail::random_name, dtype::int64, shape{3}), random.data(),
              sizeof random);
  return dict;
}

/// What load_training_state does if options of the optimizer differ from the saved ones.
enum class saved_options : unsigned char {
  compare,  ///< Throws state_error.
  restore,  ///< Uses the saved ones, as a schedule had set them.
  ignore    ///< Keeps those of the optimizer.
};

/// Copies such a state into a model and its optimizer, replicated or not. Every rank loads it,
/// whatever number of ranks saved it. Strict like load_state_dict: a state_error lists all
/// mismatches before anything has changed. The optimizer must be of the same kind, with the same
/// arrays in use, and have the same options unless `options` says otherwise; states of versions
/// that did not save options are not compared. Throws state_error for an optimizer of another
/// model, negative counters and invalid options. Elements are converted between float32 and
/// float64. Allocates.
///
/// A scheduler continues at the saved step, and then sets the optimizer's learning rate. The rate
/// that it started from is treated like an option. A state with a scheduler cannot be loaded
/// without one, nor the other way around.
template <initialized_model Model, class Optimizer, class Scheduler>
void load_training_state(Model& m, Optimizer& optimizer, Scheduler&& scheduler,
                         const state_dict& dict, saved_options options = saved_options::compare) {
  detail::check_optimizer(m, optimizer, "load_training_state");
  const std::string* note = dict.find_metadata(detail::training_note);
  if (note != nullptr && *note != std::to_string(detail::training_version))
    throw state_error("load_training_state: expected a state of version " +
                      std::to_string(detail::training_version) + " or before, got version " +
                      *note);
  state_view expected, given, model;
  detail::for_each_optimizer_state(
      m, optimizer, detail::state_use::names,
      [&](const std::string& name, dtype type, const shape& extents, std::span<std::byte>) {
        expected.add_uninitialized(name, type, extents);
      });
  detail::for_each_saved_option(optimizer, [&](const std::string& name, dtype type, auto) {
    if (note != nullptr || dict.contains(name)) expected.add_uninitialized(name, type, shape{});
  });
  detail::for_each_scheduler_state(
      scheduler, [&](const std::string& name, dtype type, std::span<std::byte>,
                     const shape& extents) { expected.add_uninitialized(name, type, extents); });
  expected.add_owned(detail::random_name, dtype::int64, shape{3});
  for (const auto& e : dict) {
    const bool of_model = e.name.starts_with(detail::model_prefix);
    state_view& to = of_model ? model : given;
    const std::string name = of_model ? e.name.substr(detail::model_prefix.size()) : e.name;
    if (e.uninitialized)
      to.add_uninitialized(name, e.type, e.extents);
    else
      to.add_view(name, e.type, e.extents, e.bytes.data());
  }
  model.set_metadata({dict.metadata().begin(), dict.metadata().end()});
  detail::state_complaint wrong;
  wrong.compare(expected, given, true);
  wrong.throw_if_any();
  for (const auto& e : given)
    if (e.name != detail::random_name) detail::check_counters(e);
  const auto random = given.at(detail::random_name).template view<std::int64_t, shape{3}>();
  if (random[2] < 0)
    throw state_error("random: expected a number of steps, got " + std::to_string(random[2]));
  detail::check_saved_schedule(scheduler, given);
  if (options == saved_options::compare) detail::compare_options(optimizer, scheduler, given);
  if (options == saved_options::restore) detail::check_saved_options(optimizer, given);

  load_state_dict(m, model);
  detail::for_each_optimizer_state(
      m, optimizer, detail::state_use::write,
      [&](const std::string& name, dtype type, const shape&, std::span<std::byte> bytes) {
        detail::copy_elements(bytes.data(), type, given.at(name));
      });
  if (options == saved_options::restore) detail::restore_options(optimizer, given);
  detail::for_each_scheduler_state(scheduler, [&](const std::string& name, dtype type,
                                                  std::span<std::byte> bytes, const shape&) {
    if (options == saved_options::ignore && name.ends_with("_lr")) return;
    detail::copy_elements(bytes.data(), type, given.at(name));
  });
  if constexpr (requires { scheduler.restored(); }) scheduler.restored();
  m.set_seed({std::bit_cast<std::uint64_t>(random[0]), std::bit_cast<std::uint64_t>(random[1])});
  m.set_random_step(static_cast<std::uint64_t>(random[2]));
}

/// The same without a scheduler.
template <initialized_model Model, class Optimizer>
void load_training_state(Model& m, Optimizer& optimizer, const state_dict& dict,
                         saved_options options = saved_options::compare) {
  load_training_state(m, optimizer, detail::no_scheduler{}, dict, options);
}

}  // namespace ikebana
