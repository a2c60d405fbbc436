#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>

#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"

namespace ikebana {

namespace detail {

template <class M>
std::string options_text(const M& m, std::string_view unknown) {
  if constexpr (requires(description & d) { m.describe(d); }) {
    description d{unknown};
    m.describe(d);
    return d.text();
  } else {
    return {};
  }
}

template <class M>
void print_module(std::string& out, const M& m, std::size_t indent, std::string_view unknown);

template <class M>
void print_module(std::string& out, const M& m, std::size_t indent, std::string_view unknown) {
  out.append(M::kind).append("(").append(options_text(m, unknown));
  if constexpr (composite_module<M>) {
    out += '\n';
    for_each_child(m, [&](const auto& child, const child_name& name) {
      out.append(indent + 2, ' ').append("(");
      out += name.index < 0 ? std::string{name.name} : std::to_string(name.index);
      out += "): ";
      print_module(out, child, indent + 2, unknown);
      out += '\n';
    });
    out.append(indent, ' ');
  }
  out += ')';
}

}  // namespace detail

/// A module in PyTorch's print format: its options, and its children by name, one per line.
/// `unknown` stands for a `dynamic` extent without a number. Allocates.
template <any_module M>
std::string to_string(const M& m, std::string_view unknown = "dynamic") {
  std::string out;
  detail::print_module(out, m, 0, unknown);
  return out;
}

template <any_module M, class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& stream, const M& m) {
  return stream << to_string(m);
}

}  // namespace ikebana
