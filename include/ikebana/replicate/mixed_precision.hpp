#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/core/number_format.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/replicate/find_option.hpp"
#include "ikebana/replicate/mixed/mixed_feature.hpp"
#include "ikebana/replicate/mixed/mixed_plan.hpp"
#include "ikebana/replicate/mixed/mixed_reduce.hpp"
#include "ikebana/replicate/utils/root_modules.hpp"

namespace ikebana {

namespace detail {

template <class X>
inline constexpr bool is_mixed_type =
    std::is_void_v<X> || std::is_same_v<X, float> || std::is_same_v<X, double> ||
    std::is_same_v<X, bfloat16> || std::is_same_v<X, float16>;

struct cast_inputs_key {};

template <class Option>
inline constexpr bool is_mixed_override = false;

template <bool Cast, class... Options>
inline constexpr bool casts_inputs_by = Cast;
template <bool Cast, class First, class... Rest>
inline constexpr bool casts_inputs_by<Cast, First, Rest...> = [] {
  if constexpr (answers<cast_inputs_key, First>)
    return First::value;
  else
    return casts_inputs_by<Cast, Rest...>;
}();

/// The format that a number of type X is rounded to in a model of T.
template <class X, class T>
constexpr number_format number_format_of() {
  if constexpr (std::is_same_v<X, bfloat16>)
    return number_format::bfloat16;
  else if constexpr (std::is_same_v<X, float16>)
    return number_format::float16;
  else if constexpr (std::is_same_v<X, float> && std::is_same_v<T, double>)
    return number_format::float32;
  else
    return number_format::full;
}

template <class X, class T>
inline constexpr bool is_wider = std::is_same_v<X, double>&& std::is_same_v<T, float>;

}  // namespace detail

/// Whether inputs are cast to the parameters' type on entry to the module for which it is given: an
/// option of `mixed_precision` and `mixed_precision_at` (PyTorch's cast_forward_inputs). Default:
/// true.
template <bool Value>
struct cast_inputs {
  using replicate_key = detail::cast_inputs_key;
  static constexpr bool value = Value;
};

/// Other types for one module and everything below it: an option of `mixed_precision`. Of nested
/// modules, the innermost named one counts. If `Reduce` is void it is the whole model's if that is
/// given, else `Param`; `Output` applies to values that leave the module. Option: cast_inputs.
/// `mixed_precision_at<"norm", float>`
template <detail::literal Path, class Param = void, class Reduce = void, class Output = void,
          class... Options>
struct mixed_precision_at {
  static_assert(detail::is_mixed_type<Param> && detail::is_mixed_type<Reduce> &&
                    detail::is_mixed_type<Output>,
                "ikebana: mixed_precision_at expects float, double, bfloat16, float16 or void for "
                "each type");
  static_assert((detail::answers<detail::cast_inputs_key, Options> && ...),
                "ikebana: mixed_precision_at takes the option cast_inputs");
  using param_type = Param;
  using reduce_type = Reduce;
  using output_type = Output;
  static constexpr std::string_view path{Path.data, Path.size()};
  static constexpr bool casts_inputs = detail::casts_inputs_by<true, Options...>;
};

namespace detail {
template <literal Path, class... X>
inline constexpr bool is_mixed_override<mixed_precision_at<Path, X...>> = true;
}  // namespace detail

/// Computes and reduces in smaller types, with the model's own parameters as master weights
/// (PyTorch: MixedPrecisionPolicy(param_dtype, reduce_dtype, output_dtype, cast_forward_inputs) of
/// FSDP, and the buffer_dtype of DDP). Each type is float, double, bfloat16, float16, or void for
/// unchanged.
///
///     replicate_policy<mixed_precision<bfloat16, float, void, void,
///                                      mixed_precision_at<"norm", float>>>
///
/// The model's memory, state dict and optimizer keep its element type T. Arithmetic is done in T;
/// what PyTorch would store in another type is rounded to it (to nearest, ties to even) at the
/// boundaries of leaf modules:
///
/// - `Param`: leaves read a copy of the parameters that is rounded in every forward. The model's
///   inputs, every leaf's outputs, every gradient between leaves and every parameter gradient are
///   rounded. An input of a leaf in another precision is cast.
/// - `Reduce`: gradients are accumulated and sent in this type, with 2 bytes each for bfloat16 and
///   float16, summed in float and rounded once; then they are converted to T. void means `Param`. A
///   `comm_hook` replaces the communication and sees gradients of T.
/// - `Output`: the type of the model's outputs. The incoming gradient is rounded to it, then to
///   that of the leaf that receives it.
/// - `Buffer`: floating-point buffers, rounded in place before and after every leaf; void leaves
///   them alone.
///
/// float16 overflows from 65520 on: scale the loss (`grad_scaler`). `Param`, `Output` and `Buffer`
/// cannot be wider than T. Inputs of a call with another floating-point type are first cast to T,
/// unless `cast_inputs<false>`; such a call allocates. Options: `cast_inputs<false>`,
/// `mixed_precision_at<"path", ...>`. Needs additional memory for twice the parameters, and for
/// inputs and outputs that are cast. Other steps do not allocate after the first with inputs of
/// their size.
template <class Param = void, class Reduce = void, class Output = void, class Buffer = void,
          class... Options>
struct mixed_precision {
  static_assert(
      detail::is_mixed_type<Param> && detail::is_mixed_type<Reduce> &&
          detail::is_mixed_type<Output> && detail::is_mixed_type<Buffer>,
      "ikebana: mixed_precision expects float, double, bfloat16, float16 or void for each "
      "type");
  static_assert(((detail::answers<detail::cast_inputs_key, Options> ||
                  detail::is_mixed_override<Options>)&&...),
                "ikebana: mixed_precision takes the options cast_inputs and mixed_precision_at");
  using replicate_key = detail::mixed_precision_key;

  static constexpr bool casts_inputs = detail::casts_inputs_by<true, Options...>;

  /// The precision of the module at `path`, for a model of T.
  template <class T>
  static constexpr detail::leaf_precision of(std::string_view path) {
    detail::leaf_precision out{detail::number_format_of<Param, T>(),
                               detail::number_format_of<effective_reduce, T>(),
                               number_format::full,
                               casts_inputs,
                               {}};
    [[maybe_unused]] const auto look = [&]<class O>(std::type_identity<O>) {
      if constexpr (detail::is_mixed_override<O>)
        if (is_at_or_below(path, O::path) && O::path.size() >= out.at.size())
          out = {detail::number_format_of<typename O::param_type, T>(),
                 detail::number_format_of<reduce_at<O>, T>(),
                 detail::number_format_of<typename O::output_type, T>(), O::casts_inputs, O::path};
    };
    (look(std::type_identity<Options>{}), ...);
    return out;
  }

  /// The precision of the whole model.
  template <class T>
  static constexpr detail::model_precision of_model() {
    return {detail::number_format_of<Param, T>(), detail::number_format_of<Output, T>(),
            detail::number_format_of<Buffer, T>(), !std::is_void_v<Buffer>, casts_inputs};
  }

  /// Checks it for a model of T and the modules in this tree.
  template <class T, class Tree>
  static constexpr diagnostic check(const Tree& tree) {
    constexpr const char* wider =
        "mixed_precision: a model of float computes in float: only what gradients are reduced in "
        "can be double";
    diagnostic wrong;
    if (detail::is_wider<Param, T> || detail::is_wider<Output, T> || detail::is_wider<Buffer, T>)
      wrong.what = wider;
    [[maybe_unused]] const auto look = [&]<class O>(std::type_identity<O>) {
      if constexpr (detail::is_mixed_override<O>) {
        if (!wrong.ok()) return;
        if (tree.find(O::path) < 0)
          wrong.what = "is not the path of a module to say a precision of";
        else if (detail::is_wider<typename O::param_type, T> ||
                 detail::is_wider<typename O::output_type, T>)
          wrong.what = wider;
        if (!wrong.ok()) wrong.path = path_text{O::path};
      }
    };
    (look(std::type_identity<Options>{}), ...);
    return wrong;
  }

 private:
  using effective_reduce = std::conditional_t<std::is_void_v<Reduce>, Param, Reduce>;

  template <class O>
  using reduce_at = std::conditional_t<
      !std::is_void_v<typename O::reduce_type>, typename O::reduce_type,
      std::conditional_t<!std::is_void_v<Reduce>, Reduce, typename O::param_type>>;

  template <class O>
  struct reduce_of : std::type_identity<std::tuple<>> {};
  template <class O>
  requires detail::is_mixed_override<O>
  struct reduce_of<O> : std::type_identity<std::tuple<detail::reduce_entry<O, reduce_at<O>>>> {
  };

 public:
  /// The hook that sends gradients in their types, unless the policy has another.
  using hook_type =
      typename detail::mixed_hook<effective_reduce,
                                  decltype(std::tuple_cat(
                                      std::declval<typename reduce_of<Options>::type>()...))>::type;

  /// See feature.hpp.
  template <class Model, class Group>
  using feature = detail::mixed_feature<mixed_precision, Model>;
};

}  // namespace ikebana
