#pragma once

#include <string_view>

#include "ikebana/module/named.hpp"

namespace ikebana {

namespace detail {
struct mode_option;
}  // namespace detail

/// How a module combines elements: the interpolation of upsample, the reduction of embedding_bag.
template <detail::literal Mode>
struct mode {
  using option = detail::mode_option;
  static constexpr std::string_view value{Mode.data, Mode.size()};
};

}  // namespace ikebana
