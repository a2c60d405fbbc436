// A product by its plan.
// Needs: dots-inl.hpp, tiles-inl.hpp.

template <class T>
[[gnu::noinline]] gemm_problem problem_of(const gemm_call<T>& call) {
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
          detail::caches()};
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
  runs_of<T>[static_cast<int>(algorithm)](problem_of(call), algorithm, call);
}
/// Of a part of a product that sums in order, another that does is chosen.
template <class T>
void product_part(gemm_algorithm whole, const gemm_call<T>& call) {
  product_by(sums_in_order(whole) ? choose_gemm(problem_of(call), true) : whole, call);
}
template <class T>
gemm_algorithm algorithm_of(const gemm_call<T>& call) {
  const gemm_problem problem = problem_of(call);
  const gemm_algorithm algorithm = choose_gemm(problem);
  if (is_verbose()) [[unlikely]]
    detail::print_plan(problem, algorithm);
  return algorithm;
}
template <class T>
bool algorithm_applies(gemm_algorithm algorithm, const gemm_call<T>& call) {
  return entry_of(algorithm).applies(problem_of(call));
}

template <class T>
[[gnu::noinline]] void planned_product(const gemm_call<T>& given) {
  if (given.m == 0 || given.n == 0) return;
  const gemm_call<T> call = given.k == 1 ? detail::with_one_step(given) : given;
  product_by(algorithm_of(call), call);
}

/// What is planned from a product that is_small.
template <class T>
IKEBANA_CPU_INLINE gemm_problem problem_of(const tile_task<T>& t, dim_t m, dim_t n,
                                           detail::small_form form) {
  return {m,
          n,
          t.depth,
          form.ta == transpose::no ? t.a_row : t.a_step,
          t.b_step,
          form.ta,
          form.tb,
          false,
          dim_t{sizeof(T)},
          vec<T>::size,
          gemm_tile<T>::most_rows[2],
          form.order,
          {}};
}
/// By dot products, or transposed.
template <class T>
[[gnu::noinline]] void planned_small(const tile_task<T>& t, dim_t m, dim_t n,
                                     detail::small_form form, gemm_algorithm algorithm) {
  const gemm_problem p = problem_of(t, m, n, form);
  // The name alone would build all activations.
  const gemm_epilogue<T> then{.bias = t.init,
                              .function = {t.relu ? activation::relu : activation::none,
                                           &activate_block<T, one_activation(activation::relu)>}};
  runs_of<T>[static_cast<int>(algorithm)](
      p, algorithm,
      {m, n, p.k, t.a, p.lda, t.b, p.ldb, t.c, t.c_row, &then, T(1), T(0), p.ta, p.tb, p.order});
}
/// By tiles, of few rows and columns by one.
template <class T>
IKEBANA_CPU_INLINE void multiply_small(tile_task<T>& t, dim_t m, dim_t n) {
  const int vectors = n <= vec<T>::size ? 1 : 2;
  if (n > gemm_tile<T>::columns || m > gemm_tile<T>::most_rows[vectors])
    return multiply_strips(t, m, n);
  set_columns(t, vectors, n);
  find_tile<T>(m, vectors)(t);
}
/// The same where op(b) stands by columns.
template <class T>
[[gnu::noinline]] void turn_small(tile_task<T>& t, dim_t m, dim_t n) {
  constexpr dim_t w = vec<T>::size;
  if (t.depth > 1 || t.b_step != 1) {
    T* const rows = detail::thread_scratch<T>();
    const dim_t width = (n + w - 1) / w * w;
    turn(rows, width, t.b, t.b_step, t.depth, n);
    t.b = rows;
    t.b_step = width;
  }
  multiply_small(t, m, n);
}
/// A product that is_small: where tiles are its algorithm, jumps lead to them, since a frame would
/// take as long as a tile.
template <class T>
[[gnu::noinline]] void small_product(tile_task<T>& t, dim_t m, dim_t n, detail::small_form form) {
  const gemm_problem problem = problem_of(t, m, n, form);
  if (sums_in_lanes(problem)) return planned_small(t, m, n, form, gemm_algorithm::dot_products);
  if (n == 1 && t.a_row == 1 && t.c_row == 1) {
    // A column of the result is a row of op(b)' op(a)'.
    std::swap(t.a, t.b);
    t.a_row = t.a_step;
    t.a_step = form.tb == transpose::yes ? 1 : t.b_step;
    t.b_step = t.a_row;
    if (t.init != nullptr) t.start = tile_start::rows;
    return multiply_small(t, 1, m);
  }
  if (detail::applies_transposed(problem))
    return planned_small(t, m, n, form, gemm_algorithm::transposed);
  if (form.tb == transpose::yes) return turn_small(t, m, n);
  multiply_small(t, m, n);
}

template <class T>
void product(const gemm_call<T>& call) {
  if (!detail::is_small(call)) return planned_product(call);
  tile_task<T> t;
  detail::begin_small(t, call);
  small_product(t, call.m, call.n, {call.ta, call.tb, call.order});
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
