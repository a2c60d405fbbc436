#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/dependent.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/model/hooks/module_call.hpp"
#include "ikebana/model/hooks/module_gradients.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/unknown_path.hpp"

namespace ikebana {

template <class>
class basic_state_dict;
using state_dict = basic_state_dict<void>;

/// When a hook runs.
enum class hook_point : unsigned char {
  before_forward,
  after_forward,
  before_backward,
  after_backward,
  saving,
  loading,
  loaded
};

namespace detail {

/// The number of points that belong to a module; they come first.
inline constexpr std::size_t module_hook_points = 4;

struct hook_entry {
  hook_point point;
  std::string path;
  bool removed = false;

  hook_entry(hook_point when, std::string_view where) : point{when}, path{where} {}
  virtual ~hook_entry() = default;
  virtual void run(void* argument) = 0;
};

template <class Argument, class F>
struct hook_of final : hook_entry {
  F f;
  hook_of(hook_point when, std::string_view where, F given)
      : hook_entry{when, where}, f{std::move(given)} {}
  void run(void* argument) override { f(*static_cast<Argument*>(argument)); }
};

}  // namespace detail

/// The hooks of a model, in the order in which they run.
///
/// A template, so that it is compiled only where it is used.
template <class X>
class basic_hook_set {
 public:
  using entry = std::shared_ptr<detail::dependent<detail::hook_entry, X>>;

  void add(entry e, bool prepend) {
    entries_.insert(prepend ? entries_.begin() : entries_.end(), std::move(e));
    ++version_;
  }
  void remove(const detail::hook_entry* e) {
    std::erase_if(entries_, [e](const entry& own) { return own.get() == e; });
    ++version_;
  }
  const std::vector<entry>& entries() const { return entries_; }
  /// Changes whenever a hook is added or removed.
  std::uint64_t version() const { return version_; }

  bool any_of_modules() const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [](const entry& e) { return e->point <= hook_point::after_backward; });
  }

  /// Runs the hooks of a point that does not belong to a module.
  template <class Argument>
  void run(hook_point when, Argument& argument) const {
    const std::vector<entry> now = entries_;  // a hook may add hooks, and remove them
    for (const entry& e : now)
      if (e->point == when && !e->removed)
        e->run(const_cast<std::remove_const_t<Argument>*>(&argument));
  }

 private:
  std::vector<entry> entries_;
  std::uint64_t version_ = 1;
};
using hook_set = basic_hook_set<void>;

/// The result of a registration. remove() unregisters the hook; it may be called repeatedly, even
/// after the model is gone. Destroying the handle leaves the hook registered.
template <class X>
class basic_hook_handle {
 public:
  using hook = detail::dependent<detail::hook_entry, X>;

  basic_hook_handle() = default;
  basic_hook_handle(std::weak_ptr<basic_hook_set<X>> set, std::weak_ptr<hook> entry)
      : set_{std::move(set)}, entry_{std::move(entry)} {}

  void remove() {
    const auto entry = entry_.lock();
    if (entry == nullptr) return;
    entry->removed = true;
    if (const auto set = set_.lock()) set->remove(entry.get());
  }

 private:
  std::weak_ptr<basic_hook_set<X>> set_;
  std::weak_ptr<hook> entry_;
};
using hook_handle = basic_hook_handle<void>;

namespace detail {

/// Whether M or a module in it has this path.
template <any_module M>
constexpr bool has_module(std::string_view path) {
  for (std::size_t s = 0; s < outline_of<M>.scopes.size(); ++s)
    if (scope_path(outline_of<M>.scopes.data(), static_cast<int>(s)).view() == path) return true;
  return false;
}

/// The paths of modules, for refusals.
template <any_module M>
struct module_paths {
  static constexpr const char* what = "module";
  static constexpr std::size_t count = outline_of<M>.scopes.size();
  static constexpr path_text path(std::size_t i) {
    return scope_path(outline_of<M>.scopes.data(), static_cast<int>(i));
  }
};

/// Whether Path is that of a module of M, or one that only the program knows when it runs.
template <class M, class Path>
constexpr bool may_have_module() {
  if constexpr (is_path<Path>)
    return has_module<M>(Path::c_str());
  else
    return true;
}

/// Whether F can be a hook. A tensor that a hook returned would not be used.
template <class F, class Argument>
concept hook_function = std::invocable<F&, Argument&> && !requires(F & hook, Argument& a) {
  hook(a).data();
};

/// A function that is not a hook.
template <class Argument>
struct not_a_hook {
  template <class F>
  requires(!hook_function<F, Argument>) not_a_hook(const F&) {}
};

namespace misuse {
IKEBANA_MISUSE(not_a_forward_hook,
               "a hook of forward takes a const module_call& and returns nothing: it writes to "
               "writable_input() and writable_output()");
IKEBANA_MISUSE(not_a_backward_hook,
               "a hook of backward takes a const module_gradients& and returns nothing: it writes "
               "to their writable gradients");
IKEBANA_MISUSE(not_a_state_hook, "a hook of a state takes a state_dict& and returns nothing");
}  // namespace misuse

}  // namespace detail

/// Registration of hooks for a model of M. Self has `hook_set& forward_hooks()` and `hook_set&
/// hooks()`, by shared_ptr.
///
/// A module is identified by its path, `"block.fc1"_s` (an unknown one does not compile) or a
/// string; "" is the whole network. A module that runs twice in a forward runs its hooks twice.
/// Pre-hooks run from the outermost module inwards in the order of registration, hooks from the
/// inside outwards, in forward and in backward; `prepend` puts one before all others. A clone has
/// no hooks.
///
/// Gradient hooks run for each call of the module that a gradient reaches, in backwards of forwards
/// that began after the registration. A model with hooks runs its leaves unfused. One without pays
/// one comparison per forward, and two per leaf in backward.
template <class Self, any_module M>
class hook_registration {
 public:
  /// f(const module_call&) runs before each forward of the module at `path`, and may replace its
  /// inputs. Throws error if there is no such module. Allocates.
  template <class Path, detail::hook_function<const module_call> F>
  requires(detail::may_have_module<M, Path>()) hook_handle
      register_forward_pre_hook(const Path& path, F f, bool prepend = false) {
    return add<const module_call>(self().forward_hooks(), hook_point::before_forward, path_of(path),
                                  std::move(f), prepend);
  }
  template <class Path>
  requires(detail::may_have_module<M, Path>()) auto register_forward_pre_hook(
      const Path&, detail::not_a_hook<const module_call>, bool = false)
      -> decltype(detail::refuse_as<detail::misuse::not_a_forward_hook<detail::later<Path>>>());
  template <class Path>
  requires(!detail::may_have_module<M, Path>()) auto register_forward_pre_hook(const Path&,
                                                                               detail::anything,
                                                                               bool = false)
      -> decltype(detail::refuse_path<Path, detail::module_paths<M>>());

  /// f(const module_call&) runs after each forward of the module at `path`, and may change its
  /// output. Throws and allocates as register_forward_pre_hook does.
  template <class Path, detail::hook_function<const module_call> F>
  requires(detail::may_have_module<M, Path>()) hook_handle
      register_forward_hook(const Path& path, F f, bool prepend = false) {
    return add<const module_call>(self().forward_hooks(), hook_point::after_forward, path_of(path),
                                  std::move(f), prepend);
  }
  template <class Path>
  requires(detail::may_have_module<M, Path>()) auto register_forward_hook(
      const Path&, detail::not_a_hook<const module_call>, bool = false)
      -> decltype(detail::refuse_as<detail::misuse::not_a_forward_hook<detail::later<Path>>>());
  template <class Path>
  requires(!detail::may_have_module<M, Path>()) auto register_forward_hook(const Path&,
                                                                           detail::anything,
                                                                           bool = false)
      -> decltype(detail::refuse_path<Path, detail::module_paths<M>>());

  /// f(const module_gradients&) runs before each backward of the module at `path`, when the
  /// gradients of its outputs are complete, and may change them. Throws and allocates as
  /// register_forward_pre_hook does.
  template <class Path, detail::hook_function<const module_gradients> F>
  requires(detail::may_have_module<M, Path>()) hook_handle
      register_full_backward_pre_hook(const Path& path, F f, bool prepend = false) {
    return add<const module_gradients>(self().forward_hooks(), hook_point::before_backward,
                                       path_of(path), std::move(f), prepend);
  }
  template <class Path>
  requires(detail::may_have_module<M, Path>()) auto register_full_backward_pre_hook(
      const Path&, detail::not_a_hook<const module_gradients>, bool = false)
      -> decltype(detail::refuse_as<detail::misuse::not_a_backward_hook<detail::later<Path>>>());
  template <class Path>
  requires(!detail::may_have_module<M, Path>()) auto register_full_backward_pre_hook(
      const Path&, detail::anything, bool = false)
      -> decltype(detail::refuse_path<Path, detail::module_paths<M>>());

  /// f(const module_gradients&) runs after each backward of the module at `path`, when the
  /// gradients of its inputs are complete, and may change them before other modules read them.
  /// Throws and allocates as register_forward_pre_hook does.
  template <class Path, detail::hook_function<const module_gradients> F>
  requires(detail::may_have_module<M, Path>()) hook_handle
      register_full_backward_hook(const Path& path, F f, bool prepend = false) {
    return add<const module_gradients>(self().forward_hooks(), hook_point::after_backward,
                                       path_of(path), std::move(f), prepend);
  }
  template <class Path>
  requires(detail::may_have_module<M, Path>()) auto register_full_backward_hook(
      const Path&, detail::not_a_hook<const module_gradients>, bool = false)
      -> decltype(detail::refuse_as<detail::misuse::not_a_backward_hook<detail::later<Path>>>());
  template <class Path>
  requires(!detail::may_have_module<M, Path>()) auto register_full_backward_hook(const Path&,
                                                                                 detail::anything,
                                                                                 bool = false)
      -> decltype(detail::refuse_path<Path, detail::module_paths<M>>());

  /// f(state_dict&) runs on every state that get_state_dict returns, before it is returned.
  /// Allocates.
  template <detail::hook_function<state_dict> F>
  hook_handle register_state_dict_hook(F f, bool prepend = false) {
    return add<state_dict>(self().hooks(), hook_point::saving, "", std::move(f), prepend);
  }
  template <bool Lazy = false>
  auto register_state_dict_hook(detail::not_a_hook<state_dict>, bool = false)
      -> decltype(detail::refuse_as<detail::misuse::not_a_state_hook<Lazy>>());

  /// f(state_dict&) runs before load_state_dict compares keys, on views of the loaded state: it may
  /// rename entries without a change of the caller's dict. Allocates.
  template <detail::hook_function<state_dict> F>
  hook_handle register_load_state_dict_pre_hook(F f, bool prepend = false) {
    return add<state_dict>(self().hooks(), hook_point::loading, "", std::move(f), prepend);
  }
  template <bool Lazy = false>
  auto register_load_state_dict_pre_hook(detail::not_a_hook<state_dict>, bool = false)
      -> decltype(detail::refuse_as<detail::misuse::not_a_state_hook<Lazy>>());

  /// f(const state_dict&) runs after a state was loaded. Allocates.
  template <detail::hook_function<const state_dict> F>
  hook_handle register_load_state_dict_post_hook(F f, bool prepend = false) {
    return add<const state_dict>(self().hooks(), hook_point::loaded, "", std::move(f), prepend);
  }
  template <bool Lazy = false>
  auto register_load_state_dict_post_hook(detail::not_a_hook<const state_dict>, bool = false)
      -> decltype(detail::refuse_as<detail::misuse::not_a_state_hook<Lazy>>());

 private:
  Self& self() { return static_cast<Self&>(*this); }

  template <class Path>
  static std::string_view path_of(const Path& path) {
    if constexpr (detail::is_path<Path>) {
      return Path::c_str();
    } else {
      if (!detail::has_module<M>(path))
        throw_error(error("the network has no module '" + std::string{path} + "' to hook"));
      return path;
    }
  }

  template <class Argument, class F>
  static hook_handle add(const std::shared_ptr<hook_set>& set, hook_point when,
                         std::string_view path, F f, bool prepend) {
    auto entry = std::make_shared<detail::hook_of<Argument, F>>(when, path, std::move(f));
    set->add(entry, prepend);
    return {set, entry};
  }
};

}  // namespace ikebana
