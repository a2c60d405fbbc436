// The functions of a register as types, and how one of float is computed in double.

/// x[i] = F{}(x[i]) by way of double, for a register of float.
template <class F>
[[gnu::noinline]] void lanes_by_double(float* x) {
  constexpr dim_t n = vec<double>::size;
  for (dim_t i = 0; i < vec<float>::size; i += n) {
    double lanes[n];
    for (dim_t l = 0; l < n; ++l) lanes[l] = static_cast<double>(x[i + l]);
    F{}(vec<double>::load(lanes)).store(lanes);
    for (dim_t l = 0; l < n; ++l) x[i + l] = static_cast<float>(lanes[l]);
  }
}
template <class F>
IKEBANA_CPU_INLINE vec<float> by_double(vec<float> x) {
  float lanes[vec<float>::size];
  x.store(lanes);
  lanes_by_double<F>(lanes);
  return vec<float>::load(lanes);
}

/// The functions of a register, as types.
#define IKEBANA_CPU_FUNCTION(function)                     \
  struct function##_function {                             \
    template <class T>                                     \
    IKEBANA_CPU_INLINE vec<T> operator()(vec<T> x) const { \
      return function(x);                                  \
    }                                                      \
  };
IKEBANA_CPU_FUNCTION(relu)
IKEBANA_CPU_FUNCTION(exp)
IKEBANA_CPU_FUNCTION(expm1_of_negative)
IKEBANA_CPU_FUNCTION(tanh)
IKEBANA_CPU_FUNCTION(log)
IKEBANA_CPU_FUNCTION(log1p_of_fraction)
IKEBANA_CPU_FUNCTION(sigmoid)
IKEBANA_CPU_FUNCTION(silu)
IKEBANA_CPU_FUNCTION(gelu)
IKEBANA_CPU_FUNCTION(gelu_slope)
IKEBANA_CPU_FUNCTION(gelu_tanh)
IKEBANA_CPU_FUNCTION(gelu_tanh_slope)
IKEBANA_CPU_FUNCTION(erf)
#undef IKEBANA_CPU_FUNCTION

/// Whether float is computed in double: where a register holds one number, that costs little.
template <class T>
inline constexpr bool through_double = IKEBANA_CPU_WIDTH == 0 && sizeof(T) == 4;
/// The same of what needs more than float, where no piecewise polynomials stand in for it.
template <class T>
inline constexpr bool narrow_through_double = IKEBANA_CPU_WIDTH <= 16 && sizeof(T) == 4;
template <class T>
inline constexpr bool has_pieces = IKEBANA_CPU_WIDTH >= 32 && sizeof(T) == 4;
