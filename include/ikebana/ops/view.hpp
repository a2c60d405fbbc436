#pragma once

#include <cstddef>
#include <string_view>

#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/ops/shapes.hpp"

// The same elements of a value of a graph under another shape. They copy nothing: O(1).
namespace ikebana {

namespace ops {

enum class view_op : unsigned char { reshape, squeeze, unsqueeze };

struct view {
  static constexpr std::string_view kind = "view";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_view = true;

  view_op f = view_op::reshape;
  number_list dims{{-1}, 1};

  constexpr bool operator==(const view&) const = default;

  constexpr inferred infer(const shape& in) const {
    return f == view_op::reshape   ? infer_reshape(in)
           : f == view_op::squeeze ? infer_squeeze(in)
                                   : infer_unsqueeze(in);
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const {
    d.add("f", f == view_op::reshape   ? std::string_view{"reshape"}
               : f == view_op::squeeze ? std::string_view{"squeeze"}
                                       : std::string_view{"unsqueeze"});
    describe_numbers(d, f == view_op::reshape ? "shape" : "dim", dims);
  }

 private:
  constexpr inferred infer_reshape(const shape& in) const {
    dim_t known = 1;
    std::size_t open = dims.size();
    shape out;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] < 0)
        open = i;
      else
        known *= dims[i];
      out.push_back(dims[i] < 0 ? dynamic : dims[i]);
    }
    if (!in.is_static()) return out;
    const dim_t n = in.numel();
    if (open == dims.size() ? n != known : known == 0 ? n != 0 : n % known != 0)
      return diagnostic{open == dims.size()
                            ? "reshape expects {expected} elements, got {got} (input {input}, to "
                              "{other})"
                            : "reshape expects a multiple of {expected} elements, got {got} (input "
                              "{input}, to {other})",
                        known, n, in, out};
    if (open < dims.size()) out[open] = known == 0 ? 0 : n / known;
    return out;
  }
  constexpr inferred infer_squeeze(const shape& in) const {
    bool taken[shape::max_rank]{};
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (!has_dim(dims[i], in.rank()))
        return diagnostic{
            "squeeze expects a dim within {expected} dimensions, got {number} (input {input})",
            static_cast<dim_t>(in.rank()), dims[i], in};
      const std::size_t d = dim_of(dims[i], in.rank());
      if (in[d] >= 0 && in[d] != 1)
        return diagnostic{"squeeze expects an extent of 1, got {got} (input {input})", 1, in[d],
                          in};
      taken[d] = true;
    }
    shape out;
    for (std::size_t d = 0; d < in.rank(); ++d)
      if (!taken[d]) out.push_back(in[d]);
    return out;
  }
  constexpr inferred infer_unsqueeze(const shape& in) const {
    const std::size_t rank = in.rank() + dims.size();
    if (rank > shape::max_rank)
      return diagnostic{
          "unsqueeze expects at most {expected} dimensions, got {got} (input {input})",
          static_cast<dim_t>(shape::max_rank), static_cast<dim_t>(rank), in};
    bool added[shape::max_rank]{};
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (!has_dim(dims[i], rank) || added[dim_of(dims[i], rank)])
        return diagnostic{
            "unsqueeze expects each dim once and within {expected} dimensions, got "
            "{number} (input {input})",
            static_cast<dim_t>(rank), dims[i], in};
      added[dim_of(dims[i], rank)] = true;
    }
    shape out;
    for (std::size_t d = 0, from = 0; d < rank; ++d) out.push_back(added[d] ? 1 : in[from++]);
    return out;
  }
};

}  // namespace ops

/// Another shape of as many elements; one extent may be -1 (`dynamic`), what the others leave:
/// torch.reshape. A view.
template <dim_t... Sizes, symbolic X>
requires(sizeof...(Sizes) <= shape::max_rank) constexpr auto reshape(const X& x) {
  static_assert(((Sizes < 0) + ... + 0) <= 1, "ikebana: reshape finds one extent, written as -1");
  return apply(ops::view{ops::view_op::reshape, ops::number_list::of<Sizes...>()}, x);
}

/// Without these dimensions, whose extents are 1: torch.squeeze. A view.
template <dim_t... Dims, symbolic X>
requires(sizeof...(Dims) > 0) constexpr auto squeeze(const X& x) {
  return apply(ops::view{ops::view_op::squeeze, ops::number_list::of<Dims...>()}, x);
}

/// With these dimensions of extent 1, as they are numbered afterwards: torch.unsqueeze,
/// numpy.expand_dims. A view.
template <dim_t... Dims, symbolic X>
requires(sizeof...(Dims) > 0) constexpr auto unsqueeze(const X& x) {
  return apply(ops::view{ops::view_op::unsqueeze, ops::number_list::of<Dims...>()}, x);
}

}  // namespace ikebana
