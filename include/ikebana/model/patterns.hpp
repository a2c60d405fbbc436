#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "ikebana/model/views_by_path.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/path_pattern.hpp"
#include "ikebana/module/unknown_path.hpp"

namespace ikebana::detail {

/// Patterns of paths.
template <literal... Patterns>
struct pattern_list {
  static constexpr std::size_t size = sizeof...(Patterns);

  static constexpr bool matches(std::string_view path) {
    return (covers_path({Patterns.data, Patterns.size()}, path) || ...);
  }
  static std::string name() {
    std::string all;
    ((all += all.empty() ? "" : ",", all += std::string_view{Patterns.data, Patterns.size()}), ...);
    return all;
  }

  /// The first of the patterns that matches no parameter of Model, or their number.
  template <class Model>
  static constexpr std::size_t find_useless() {
    constexpr auto program = Model::lowered();
    const std::string_view patterns[] = {{Patterns.data, Patterns.size()}...};
    for (std::size_t k = 0; k < size; ++k) {
      bool is_used = false;
      for (const auto& p : program.all_parameters())
        is_used = is_used || covers_path(patterns[k], program.path(p).view());
      if (!is_used) return k;
    }
    return size;
  }

  template <std::size_t K>
  using nth = std::tuple_element_t<K, std::tuple<hana_string_t<Patterns>...>>;
};

/// The patterns of several lists.
template <class... Lists>
struct join_patterns;
template <literal... A>
struct join_patterns<pattern_list<A...>> {
  using type = pattern_list<A...>;
};
template <literal... A, literal... B, class... More>
struct join_patterns<pattern_list<A...>, pattern_list<B...>, More...>
    : join_patterns<pattern_list<A..., B...>, More...> {};

/// Whether each pattern matches a parameter of Model.
template <class Model, class Patterns>
inline constexpr bool all_match = Patterns::template find_useless<Model>() == Patterns::size;

/// The refusal of the first pattern that matches nothing; no type if there is none.
template <class Model, class Patterns>
struct find_pattern_refusal {};
template <class Model, class Patterns>
requires(!all_match<Model, Patterns>) struct find_pattern_refusal<Model, Patterns> {
  using type = decltype(refuse_path<
                        typename Patterns::template nth<Patterns::template find_useless<Model>()>,
                        parameter_paths<Model>>());
};
template <class Model, class Patterns>
using pattern_refusal = typename find_pattern_refusal<Model, Patterns>::type;

}  // namespace ikebana::detail
