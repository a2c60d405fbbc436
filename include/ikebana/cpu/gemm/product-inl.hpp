// A product by its plan.
// Needs: dots-inl.hpp, tiles-inl.hpp.

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

template <class T>
void run_tiles(const gemm_problem& problem, gemm_algorithm algorithm, const gemm_call<T>& call) {
  multiply_tiles(plan_gemm(problem, algorithm), call);
}
/// How each entry of gemm_table runs. Without vectors there are tiles alone.
template <class T>
inline constexpr void (*runs_of[])(const gemm_problem&, gemm_algorithm, const gemm_call<T>&) = {
#if IKEBANA_CPU_WIDTH == 0
    &run_tiles<T>, &run_tiles<T>,
#else
    &multiply_by_dots<T>, &multiply_transposed<T>,
#endif
    &run_tiles<T>, &run_tiles<T>};

/// The product by this algorithm, which applies.
template <class T>
void product_by(gemm_algorithm algorithm, const gemm_call<T>& call) {
  runs_of<T>[static_cast<int>(algorithm)](problem_of(call, detail::caches()), algorithm, call);
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
  return entry_of(algorithm).applies(problem_of(call, detail::caches()));
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
    if (!sums_in_lanes(problem) && !detail::applies_transposed(problem))
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
