#pragma once

#include <type_traits>
#include <utility>

#include "ikebana/compose/replace_leaves.hpp"
#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/deploy/embedded.hpp"
#include "ikebana/deploy/fold.hpp"
#include "ikebana/deploy/quantize_leaves.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/shape_list.hpp"

namespace ikebana::detail {

/// Of weights of 16 bits or bytes: the module that `quantize` makes of M, or, if W has the tensors
/// of M's norms and computed weights, or numbers into which no scaling of M is folded, that of M as
/// it is.
template <class W, any_module M, shape... In>
requires(embedded_type<W> != dtype::float32) struct embedded_form<W, M, In...> {
 private:
  using resolved = become_t<M, In...>;
  using choice = std::conditional_t<embedded_type<W> == dtype::int8, quantize_leaf,
                                    std::conditional_t<embedded_type<W> == dtype::bfloat16,
                                                       halve_leaf<bfloat16>, halve_leaf<float16>>>;

  static constexpr auto folded(const M& m) {
    return replace_leaves<choice>(folding<resolved, In...>::fold(become<shape_list{In...}>(m)));
  }
  static constexpr auto as_it_is(const M& m) {
    return replace_leaves<choice>(become<shape_list{In...}>(m));
  }
  template <class Module>
  static constexpr bool matches = check_tensors<W, Module, In...>().ok();

  /// Whether the tensors of a folded network, which may be those of M, are meant.
  static constexpr bool may_be_folded =
      is_folded_in<W> || !folding<resolved, In...>::found.changes_weights;

  static constexpr auto chosen(const M& m) {
    if constexpr (may_be_folded && matches<decltype(folded(m))>)
      return folded(m);
    else if constexpr (matches<decltype(as_it_is(m))>)
      return as_it_is(m);
    else
      return folded(m);  // Whose error is the one to tell.
  }

 public:
  static constexpr auto of(const M& m) { return chosen(m); }
  using type = decltype(chosen(std::declval<const M&>()));
};

}  // namespace ikebana::detail
