#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/model/module_call.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana {

template <class>
class basic_state_dict;
using state_dict = basic_state_dict<void>;

/// When a hook runs.
enum class hook_point : unsigned char { before_forward, after_forward, saving, loading, loaded };

namespace detail {

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

/// The hooks of a model, in the order in which they run. What is a template without need is so that
/// only who uses it compiles it: here as elsewhere.
class hook_set {
 public:
  using entry = std::shared_ptr<detail::hook_entry>;

  template <class = void>
  void add(entry e, bool prepend) {
    entries_.insert(prepend ? entries_.begin() : entries_.end(), std::move(e));
    ++version_;
  }
  template <class = void>
  void remove(const detail::hook_entry* e) {
    std::erase_if(entries_, [e](const entry& own) { return own.get() == e; });
    ++version_;
  }
  const std::vector<entry>& entries() const { return entries_; }
  /// Changes whenever a hook comes or goes.
  std::uint64_t version() const { return version_; }

  template <class = void>
  bool any_forward() const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [](const entry& e) { return e->point <= hook_point::after_forward; });
  }

  /// Runs the hooks of a point that is no module's.
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

/// What a registration gives: remove() takes the hook away, once or more often, whether the model
/// still is there or not. Letting go of the handle leaves the hook.
class hook_handle {
 public:
  hook_handle() = default;
  hook_handle(std::weak_ptr<hook_set> set, std::weak_ptr<detail::hook_entry> entry)
      : set_{std::move(set)}, entry_{std::move(entry)} {}

  template <class = void>
  void remove() {
    const auto entry = entry_.lock();
    if (entry == nullptr) return;
    entry->removed = true;
    if (const auto set = set_.lock()) set->remove(entry.get());
  }

 private:
  std::weak_ptr<hook_set> set_;
  std::weak_ptr<detail::hook_entry> entry_;
};

namespace detail {

/// Whether a module of M, or M itself, has this path.
template <any_module M>
constexpr bool has_module(std::string_view path) {
  for (std::size_t s = 0; s < outline_of<M>.scopes.size(); ++s)
    if (scope_path(outline_of<M>.scopes.data(), static_cast<int>(s)).view() == path) return true;
  return false;
}

}  // namespace detail

/// The registration of hooks, for a model of M: Self has `hook_set& forward_hooks()` and `hook_set&
/// hooks()`, by shared_ptr.
///
/// A module is named by its path, `"block.fc1"_s` (then a wrong one does not compile) or a string;
/// "" is the whole network. A module that runs twice in a forward has its hooks run twice. Hooks
/// before a module run outside in, in the order of their registration, those after it inside out;
/// `prepend` puts one before all others. A model without hooks pays one comparison for each
/// forward. A clone has none of the hooks.
template <class Self, any_module M>
class hook_registration {
 public:
  /// f(const module_call&) runs before each forward of the module at `path`. Throws error if there
  /// is none. Allocates.
  template <class Path, class F>
  hook_handle register_forward_pre_hook(const Path& path, F f, bool prepend = false) {
    return add<const module_call>(self().forward_hooks(), hook_point::before_forward, path_of(path),
                                  std::move(f), prepend);
  }

  /// f(const module_call&) runs after each forward of the module at `path`, and may write its
  /// output.
  template <class Path, class F>
  hook_handle register_forward_hook(const Path& path, F f, bool prepend = false) {
    return add<const module_call>(self().forward_hooks(), hook_point::after_forward, path_of(path),
                                  std::move(f), prepend);
  }

  /// f(state_dict&) runs on every state that get_state_dict gives, before it is given.
  template <class F>
  hook_handle register_state_dict_hook(F f, bool prepend = false) {
    return add<state_dict>(self().hooks(), hook_point::saving, "", std::move(f), prepend);
  }

  /// f(state_dict&) runs before load_state_dict compares any key, on views of what is loaded: names
  /// may be changed, the dict that was given stays as it is.
  template <class F>
  hook_handle register_load_state_dict_pre_hook(F f, bool prepend = false) {
    return add<state_dict>(self().hooks(), hook_point::loading, "", std::move(f), prepend);
  }

  /// f(const state_dict&) runs once a state was loaded.
  template <class F>
  hook_handle register_load_state_dict_post_hook(F f, bool prepend = false) {
    return add<const state_dict>(self().hooks(), hook_point::loaded, "", std::move(f), prepend);
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }

  template <class Path>
  static std::string_view path_of(const Path& path) {
    if constexpr (requires { Path::c_str(); }) {
      static_assert(detail::has_module<M>(Path::c_str()),
                    "ikebana: the network has no module of this path");
      return Path::c_str();
    } else {
      if (!detail::has_module<M>(path))
        throw error("the network has no module '" + std::string{path} + "' to hook");
      return path;
    }
  }

  template <class Argument, class F>
  static hook_handle add(const std::shared_ptr<hook_set>& set, hook_point when,
                         std::string_view path, F f, bool prepend) {
    static_assert(std::is_invocable_v<F&, Argument&>,
                  "ikebana: a hook of forward takes a const module_call&, one of a state a "
                  "state_dict&");
    if constexpr (std::is_invocable_v<F&, Argument&>) {
      auto entry = std::make_shared<detail::hook_of<Argument, F>>(when, path, std::move(f));
      set->add(entry, prepend);
      return {set, entry};
    } else {
      return {};
    }
  }
};

}  // namespace ikebana
