#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/diagnostic.hpp"
#include "ikebana/cpu/gemm_bf16.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

/// An option of `precision`: the paths of modules that keep float products, including all modules
/// below them. `full_precision_at<"head">`
template <detail::literal... Paths>
struct full_precision_at {
  static_assert(sizeof...(Paths) > 0, "ikebana: full_precision_at expects paths of modules");
  static constexpr std::string_view paths[] = {std::string_view{Paths.data, Paths.size()}...};
};

namespace detail {

template <class Option>
inline constexpr bool is_precision_option = false;
template <literal... Paths>
inline constexpr bool is_precision_option<full_precision_at<Paths...>> = true;

}  // namespace detail

/// Takes the place of a model's element type: a float model whose matrix products round their
/// operands to bfloat16 (to nearest, ties to even) and accumulate in float.
///
///     auto net = initialize<precision<bf16>, shape{dynamic, 1024}>(mlp, seed{1});
///     auto net = initialize<precision<bf16, full_precision_at<"head">>, shape{dynamic, 1024}>(..);
///
/// Inputs, outputs, parameters, gradients, states and optimizers are those of a float model. So is
/// all arithmetic except the products, forward and backward, of linear, bilinear,
/// multihead_attention's projections, recurrent modules and cells. (Convolutions and attention
/// scores stay in float.) Operands are rounded on their way into a product: nothing is stored
/// twice, and a step needs no more memory than a float model's. bfloat16 has the exponent range of
/// float, so losses need no scaling. (In PyTorch, oneDNN's float32_matmul_precision rounds in the
/// same places; torch.autocast also rounds the values between modules.)
///
/// Faster than float if the processor multiplies bfloat16 (AMX; AVX512-BF16 of AMD). Elsewhere
/// rounded floats are multiplied, somewhat slower than in float.
template <class Factors, class... Options>
struct precision {};

namespace detail {

/// The context of a leaf in a model of such a precision.
class rounding_context : public context<float> {
 public:
  rounding_context(const context<float>& c, bool is_rounding)
      : context<float>(c), rounds{is_rounding} {}

  /// Like cpu::gemm with alpha = 1.
  void product(cpu::transpose ta, cpu::transpose tb, dim_t m, dim_t n, dim_t k, const float* a,
               dim_t lda, const float* b, dim_t ldb, float beta, float* to, dim_t ldc,
               const cpu::gemm_epilogue<float>& then) const {
    if (rounds)
      cpu::gemm_bf16(ta, tb, m, n, k, 1.0f, a, lda, b, ldb, beta, to, ldc, then);
    else
      cpu::gemm<float>(ta, tb, m, n, k, 1.0f, a, lda, b, ldb, beta, to, ldc, then,
                       cpu::order_of_rows(ta));
  }

  bool rounds;
};

namespace misuse {
IKEBANA_MISUSE(precision_takes_bf16,
               "precision takes bf16, for a model of float whose products are rounded; a model of "
               "double has the precision of double: initialize<double, ...>");
IKEBANA_MISUSE(precision_takes_paths,
               "precision takes the option full_precision_at<\"path\", ...>");
}  // namespace misuse

/// A precision that initialize refuses.
template <class Factors, class... Options>
struct element_traits<precision<Factors, Options...>> {
  using misuse = std::conditional_t<std::is_same_v<Factors, bfloat16>,
                                    misuse::precision_takes_paths<later<Factors>>,
                                    misuse::precision_takes_bf16<later<Factors>>>;
};

template <class... Options>
requires(is_precision_option<Options>&&...) struct element_traits<precision<bfloat16, Options...>> {
  using Factors = bfloat16;
  using value_type = float;
  static constexpr bool has_exceptions = sizeof...(Options) > 0;

  static rounding_context given(const context<float>& c, bool is_exception) {
    return {c, !is_exception};
  }

  static constexpr bool is_exception(std::string_view path) {
    bool found = false;
    each_path([&](std::string_view p) { found = found || covers(p, path); });
    return found;
  }

  /// Checks the paths against this program.
  template <class Program>
  static constexpr diagnostic check(const Program& p) {
    diagnostic wrong;
    each_path([&](std::string_view path) {
      bool found = false;
      for (const auto& leaf : p.all_leaves()) found = found || covers(path, p.path(leaf).view());
      if (!found && wrong.ok())
        wrong = {
            "is not the path of a module to say a precision of", 0, 0, {}, {}, path_text{path}};
    });
    return wrong;
  }

 private:
  static constexpr bool covers(std::string_view module, std::string_view path) {
    return path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.');
  }
  template <class F>
  static constexpr void each_path(F f) {
    const auto all = [&]<class O>(std::type_identity<O>) {
      for (const std::string_view path : O::paths) f(path);
    };
    (all(std::type_identity<Options>{}), ...);
  }
};

}  // namespace detail
}  // namespace ikebana
