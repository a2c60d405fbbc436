#pragma once

#include "ikebana/core/language.hpp"

namespace ikebana::detail {

template <class T, class... X>
struct dependent_type {
  using type = T;
};

/// T, as a template sees it that does not know yet what X is. clang instantiates the constexpr
/// members of a standard container, all of them in C++20, wherever they are named, even in a
/// template that nothing uses: 2 to 20 ms for each kind of element. Where the element is a
/// dependent type, that waits until the template is instantiated.
template <class T, class... X>
using dependent = typename dependent_type<T, X...>::type;

}  // namespace ikebana::detail
