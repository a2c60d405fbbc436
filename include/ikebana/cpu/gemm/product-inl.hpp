// A product by its plan.
// Needs: dots-inl.hpp, lane_tiles-inl.hpp, vector-inl.hpp, tiles-inl.hpp.

template <class T>
IKEBANA_CPU_INLINE gemm_problem problem_of(const gemm_call<T>& call,
                                           const detail::cache_sizes& caches) {
  return {call.m,
          call.n,
          call.k,
          call.lda,
          call.ldb,
          call.ta,
          call.tb,
          call.alpha != T(1),
          dim_t{sizeof(T)},
          vec<T>::size,
          gemm_tile<T>::most_rows[2],
          call.order,
          caches};
}

/// The product by this algorithm, which applies.
template <class T>
void product_by(gemm_algorithm algorithm, const gemm_call<T>& call) {
  const gemm_problem problem = problem_of(call, detail::caches());
  // Without vectors there are tiles alone.
  if constexpr (vec<T>::size > 1) {
    if (algorithm == gemm_algorithm::dot_products) return multiply_by_dots(problem, call);
    if (algorithm == gemm_algorithm::lane_tiles) return multiply_lane_tiles(call);
    if (algorithm == gemm_algorithm::vector_matrix) return multiply_vector(call);
    if (algorithm == gemm_algorithm::transposed) return multiply_transposed(call);
  }
  multiply_tiles(plan_gemm(problem, algorithm), call);
}
/// Of a part of a product that sums in order, another that does is chosen.
template <class T>
void product_part(gemm_algorithm whole, const gemm_call<T>& call) {
  product_by(sums_in_order(whole) ? choose_gemm(problem_of(call, detail::caches()), true) : whole,
             call);
}
template <class T>
gemm_algorithm algorithm_of(const gemm_call<T>& call) {
  const gemm_problem problem = problem_of(call, detail::caches());
  const gemm_algorithm algorithm = choose_gemm(problem);
  if (is_verbose()) [[unlikely]]
    detail::print_plan(problem, algorithm);
  return algorithm;
}
template <class T>
bool algorithm_applies(gemm_algorithm algorithm, const gemm_call<T>& call) {
  return applies(algorithm, problem_of(call, detail::caches()));
}

template <class T>
[[gnu::noinline]] void planned_product(const gemm_call<T>& call) {
  if (call.m == 0 || call.n == 0) return;
  product_by(algorithm_of(call), call);
}

template <class T>
void product(const gemm_call<T>& call) {
  if (call.k == 1) [[unlikely]]
    return planned_product(detail::with_one_step(call));
  if (is_small(call)) {
    const gemm_problem problem = problem_of(call, {});
    if (!sums_in_lanes(problem) && !applies(gemm_algorithm::transposed, problem))
      return multiply_small(call);
  }
  planned_product(call);
}

/// As many products of one size, from one to the next as far as the steps say.
template <class T>
void product_batch(dim_t count, const gemm_call<T>& first, dim_t step_a, dim_t step_b,
                   dim_t step_c) {
  for (gemm_call<T> call = first; count > 0; --count) {
    product(call);
    call.a += step_a;
    call.b += step_b;
    call.c += step_c;
  }
}
