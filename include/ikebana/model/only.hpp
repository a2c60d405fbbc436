#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "ikebana/model/hooks.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/unknown_path.hpp"

namespace ikebana {

namespace detail {

/// Paths of modules.
template <literal Path, literal... Paths>
struct only_modules {
  static constexpr std::array<std::string_view, 1 + sizeof...(Paths)> paths{
      std::string_view{Path.data, Path.size()}, std::string_view{Paths.data, Paths.size()}...};

  /// Refuses the first path that is not that of a module of M.
  template <class M>
  static constexpr auto find_refusal() {
    constexpr std::size_t wrong = [] {
      std::size_t i = 0;
      while (i < paths.size() && has_module<M>(paths[i])) ++i;
      return i;
    }();
    if constexpr (wrong < paths.size())
      return find_path_refusal<path_text{paths[wrong]}, module_paths<M>>();
    else
      return accepted{};
  }
};

/// Whether a network M has these modules.
template <class M, class Only>
inline constexpr bool has_modules =
    std::is_same_v<decltype(Only::template find_refusal<M>()), accepted>;

/// Not defined: its return type refuses the modules that M does not have.
template <class M, class Only>
auto refuse_modules() -> decltype(declared(Only::template find_refusal<M>()));

/// Views of the entries of a state that belong to these modules or their children, and its
/// metadata.
template <class X = void>
state_view of_modules(const basic_state_dict<X>& dict, std::span<const std::string_view> modules) {
  basic_state_view<X> some;
  for (const auto& e : dict)
    for (const std::string_view path : modules)
      if (path.empty() ||
          (e.name.starts_with(path) && e.name.size() > path.size() && e.name[path.size()] == '.')) {
        if (e.uninitialized)
          some.add_uninitialized(e.name, e.type, e.extents);
        else
          some.add_view(e.name, e.type, e.extents, e.bytes.data());
        break;
      }
  some.set_metadata({dict.metadata().begin(), dict.metadata().end()});
  return some;
}

}  // namespace detail

/// Restricts a state to the modules with these paths: `only<"backbone", "neck">`.
template <detail::literal Path, detail::literal... Paths>
inline constexpr detail::only_modules<Path, Paths...> only{};

}  // namespace ikebana
