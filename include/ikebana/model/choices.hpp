#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/unknown_path.hpp"

namespace ikebana {

/// The arguments of a choice function, which is called before each forward.
struct choice_context {
  std::string_view path;  ///< The path of the `choose`.
  std::size_t alternatives = 0;
  std::uint64_t step = 0;  ///< The number of forwards in training mode, from 1.
  bool training = true;
  random_stream random{};         ///< For this path and step, of this replica.
  random_stream shared_random{};  ///< The same on all replicas.
};

namespace detail {

struct choice_policy {
  std::string path;
  explicit choice_policy(std::string_view p) : path{p} {}
  virtual ~choice_policy() = default;
  virtual std::size_t choose(const choice_context& c) = 0;
};

template <class F>
struct choice_policy_of final : choice_policy {
  F f;
  choice_policy_of(std::string_view p, F given) : choice_policy{p}, f{std::move(given)} {}
  std::size_t choose(const choice_context& c) override { return static_cast<std::size_t>(f(c)); }
};

inline void check_alternative(std::string_view path, int alternatives, std::size_t given) {
  if (given >= static_cast<std::size_t>(alternatives))
    throw_error(error(std::string{path} + ": has " + std::to_string(alternatives) +
                      " alternatives, got " + std::to_string(given)));
}

/// The index of M's choice at this path; the number of choices if there is none.
template <any_module M>
constexpr std::size_t choice_at(std::string_view path) {
  constexpr std::size_t choices = outline_of<M>.sizes.choices;
  for (std::size_t c = 0; c < choices; ++c)
    if (outline_of<M>.path(outline_of<M>.choices[c]).view() == path) return c;
  return choices;
}

/// The index of the alternative with this name; -1 if there is none.
template <any_module M>
constexpr int alternative_at(std::size_t choice, std::string_view name) {
  const program_choice& c = outline_of<M>.choices[choice];
  int alternative = 0;
  for (const program_scope& s : outline_of<M>.scopes) {
    if (s.parent != c.scope || alternative == c.alternatives) continue;
    if (s.index < 0 && std::string_view{s.name} == name) return alternative;
    ++alternative;
  }
  return -1;
}

/// The paths of choices, for refusals.
template <any_module M>
struct choice_paths {
  static constexpr const char* what = "choose";
  static constexpr std::size_t count = outline_of<M>.sizes.choices;
  static constexpr path_text path(std::size_t i) {
    return outline_of<M>.path(outline_of<M>.choices[i]);
  }
};

/// Whether Path is that of a choice of M, or one that only the program knows when it runs.
template <class M, class Path>
constexpr bool may_have_choice() {
  if constexpr (is_path<Path>)
    return choice_at<M>(Path::c_str()) < outline_of<M>.sizes.choices;
  else
    return true;
}

}  // namespace detail

/// Controls the `choose` compositions of a model of M. Self has `set_choice(index, alternative)`,
/// `set_choice(index, policy)` and `choice(index)`.
///
/// A choice is identified by its path, `"block.path"_s` (an unknown one does not compile) or a
/// string. It takes effect with the next forward; backward follows the last forward.
template <class Self, any_module M>
class choice_selection {
 public:
  /// `which` is the index of an alternative, its name ("long"_s or a string), or a function
  /// `std::size_t(const choice_context&)` that is called before each forward that reaches the
  /// choice. Throws error if there is no such choice or alternative. Passing a function allocates.
  template <class Path, class Which>
  requires(detail::may_have_choice<M, Path>()) void choose(const Path& path, Which which) {
    const std::size_t c = index_of(path);
    const std::string_view where = view(path);
    if constexpr (std::is_convertible_v<Which, std::size_t>) {
      check(where, c, static_cast<std::size_t>(which));
      self().set_choice(c, static_cast<int>(which));
    } else if constexpr (std::is_invocable_v<Which&, const choice_context&>) {
      self().set_choice(c,
                        std::make_shared<detail::choice_policy_of<Which>>(where, std::move(which)));
    } else {
      const std::string_view name = view(which);
      const int alternative = detail::alternative_at<M>(c, name);
      if (alternative < 0)
        throw_error(error(std::string{where} + ": has no alternative '" + std::string{name} + "'"));
      self().set_choice(c, alternative);
    }
  }

  template <class Path>
  requires(!detail::may_have_choice<M, Path>()) auto choose(const Path&, detail::anything)
      -> decltype(detail::refuse_path<Path, detail::choice_paths<M>>());

  /// The alternative that the last forward ran; before any forward, the selected one. -1 if the
  /// last forward did not reach the choice. Throws error if the network has no such choice.
  template <class Path>
  requires(detail::may_have_choice<M, Path>()) int chosen(const Path& path) const {
    return static_cast<const Self&>(*this).choice(index_of(path));
  }
  template <class Path>
  requires(!detail::may_have_choice<M, Path>()) auto chosen(const Path&) const
      -> decltype(detail::refuse_path<Path, detail::choice_paths<M>>());

 private:
  Self& self() { return static_cast<Self&>(*this); }

  template <class Path>
  static std::string_view view(const Path& path) {
    if constexpr (requires { Path::c_str(); })
      return Path::c_str();
    else
      return path;
  }

  template <class Path>
  static std::size_t index_of(const Path& path) {
    constexpr std::size_t choices = detail::outline_of<M>.sizes.choices;
    if constexpr (detail::is_path<Path>) {
      return detail::choice_at<M>(Path::c_str());
    } else {
      const std::size_t c = detail::choice_at<M>(path);
      if (c == choices)
        throw_error(error("the network has no choose at '" + std::string{view(path)} + "'"));
      return c;
    }
  }

  static void check(std::string_view path, std::size_t choice, std::size_t alternative) {
    detail::check_alternative(path, detail::outline_of<M>.choices[choice].alternatives,
                              alternative);
  }
};

}  // namespace ikebana
