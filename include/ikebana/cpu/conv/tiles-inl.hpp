// The tiles of convolutions (tiles.hpp), held in registers.

/// Four steps of a tile at a time: add_products(i) is the step i later, go_on(n) moves on by n.
/// Returns how many steps are left.
template <class Add, class GoOn>
IKEBANA_CPU_INLINE dim_t add_by_fours(dim_t depth, const Add& add_products, const GoOn& go_on) {
  for (dim_t fours = depth / 4; fours > 0; --fours) {
    add_products(0);
    go_on(0);
    add_products(1);
    go_on(0);
    add_products(2);
    go_on(0);
    add_products(3);
    go_on(4);
  }
  return depth % 4;
}

/// What a tile has summed, where it is not as wide as its registers.
template <class T>
IKEBANA_CPU_INLINE void put_part(const detail::conv_job<T>& job, const T* tile, dim_t rows,
                                 dim_t width) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t r = 0; r < rows; ++r, tile += width)
    for (dim_t j = 0; j < job.count; j += w) {
      T* const out = job.out + r * job.out_step + j;
      const dim_t lanes = job.count - j < w ? job.count - j : w;
      const vec<T> s = vec<T>::load(tile + j) +
                       (job.adds ? vec<T>::load(out, lanes) : vec<T>::broadcast(job.start[r]));
      (job.relu ? max(vec<T>::zero(), s) : s).store(out, lanes);
    }
}

template <class T, int Rows, int Registers, std::size_t... J, std::size_t... I>
IKEBANA_CPU_INLINE void slide_tile(const detail::conv_job<T>& job, std::index_sequence<J...>,
                                   std::index_sequence<I...>) {
  constexpr std::size_t n = Registers;
  constexpr dim_t w = vec<T>::size, width = Registers * w;
  // Indexed by constants only, so that no compiler keeps the sums in memory.
  vec<T> sums[] = {(static_cast<void>(I), vec<T>::zero())...};
  // There are registers for the addresses of few rows.
  constexpr std::size_t near = Rows <= 8 ? Rows : Rows / 2;
  [[maybe_unused]] const dim_t far = static_cast<dim_t>(near) * job.weight_step;
  const T* rows[] = {job.weights + static_cast<dim_t>(I / n % near) * job.weight_step...};
  (keep_in_register(rows[I < near * n ? I / n * n : 0]), ...);
  const T* image = job.image;
  const std::int32_t* image_at = job.image_at;
  const std::int32_t* weight_at = job.weight_at;
  const auto add_products = [&](dim_t later) __attribute__((always_inline)) {
    const T* const from = image + image_at[later];
    const dim_t factor = weight_at[later];
    const vec<T> columns[n] = {vec<T>::load(from + static_cast<dim_t>(J) * w)...};
    vec<T> x;
    (((I % n == 0
           ? static_cast<void>(
                 x = vec<T>::broadcast(rows[I % (near * n)][I / n < near ? factor : factor + far]))
           : void()),
      sums[I] = fma(x, columns[I % n], sums[I])),
     ...);
  };
  // Hidden, so that no compiler reads what comes later sooner than it has registers for.
  const auto go_on = [&](dim_t steps) __attribute__((always_inline)) {
    weight_at += steps;
    keep_in_register(weight_at);
    image_at += steps;
    keep_in_register(image_at);
  };
  dim_t depth = job.depth;
#if IKEBANA_CPU_WIDTH == 32
  // Where a step is 12 products, the other operations take more of it than of one of 24.
  if constexpr (sizeof...(I) >= 12) {
    depth = add_by_fours(depth, add_products, go_on);
  }
#endif
  for (; depth > 0; --depth) {
    add_products(0);
    go_on(1);
  }
  if (job.count == Registers * w) {
    T* const out = job.out;
    const dim_t out_step = job.out_step;
    if (job.adds)
      ((sums[I] = sums[I] + vec<T>::load(out + static_cast<dim_t>(I / n) * out_step +
                                         static_cast<dim_t>(I % n) * w)),
       ...);
    else
      ((sums[I] = sums[I] + vec<T>::broadcast(job.start[I / n])), ...);
    if (job.relu) ((sums[I] = max(vec<T>::zero(), sums[I])), ...);
    (sums[I].store(out + static_cast<dim_t>(I / n) * out_step + static_cast<dim_t>(I % n) * w),
     ...);
    return;
  }
  alignas(64) T tile[static_cast<std::size_t>(Rows * Registers * w)];
  (sums[I].store(tile + static_cast<dim_t>(I) * w), ...);
  put_part<T>(job, tile, Rows, width);
}
template <class T, int Rows, int Registers>
[[gnu::noinline]] void slide_tile(const detail::conv_job<T>& job) {
  slide_tile<T, Rows, Registers>(job, std::make_index_sequence<Registers>{},
                                 std::make_index_sequence<std::size_t{Rows} * Registers>{});
}

#if IKEBANA_CPU_WIDTH == 0
template <class T, std::size_t N>
IKEBANA_CPU_INLINE void sum_each(const vec<T> (&sums)[N], T* out) {
  for (std::size_t i = 0; i < N; ++i) out[i] = sums[i].v;
}
#else
/// The groups of G lanes of x, then of y, each as G / 2 lanes: its lower half plus its upper.
template <std::size_t G, class R, std::size_t... L>
IKEBANA_CPU_INLINE R merge_groups(R x, R y, std::index_sequence<L...>) {
  constexpr std::size_t n = sizeof...(L), h = G / 2, m = n / G;
  return __builtin_shufflevector(x, y,
                                 static_cast<int>((L / h < m ? 0 : n) + L / h % m * G + L % h)...) +
         __builtin_shufflevector(
             x, y, static_cast<int>((L / h < m ? 0 : n) + L / h % m * G + L % h + h)...);
}
/// Lanes of sums of `Span` of the registers, from number `First` on: by halves, as sum().
template <std::size_t First, std::size_t Span, class T, std::size_t N>
IKEBANA_CPU_INLINE vec<T> merge_sums(const vec<T> (&sums)[N]) {
  constexpr std::size_t half = Span / 2, w = static_cast<std::size_t>(vec<T>::size);
  if constexpr (Span == 1) {
    return sums[First];
  } else {
    const vec<T> x = merge_sums<First, half>(sums);
    if constexpr (First + half < N)
      return {merge_groups<w / half>(x.v, merge_sums<First + half, half>(sums).v,
                                     std::make_index_sequence<w>{})};
    else
      return {merge_groups<w / half>(x.v, x.v, std::make_index_sequence<w>{})};
  }
}
/// The sum of the lanes of each: for all at once a third of the work.
template <std::size_t First = 0, class T, std::size_t N>
IKEBANA_CPU_INLINE void sum_each(const vec<T> (&sums)[N], T* out) {
  constexpr std::size_t w = static_cast<std::size_t>(vec<T>::size);
  const vec<T> lanes = merge_sums<First, w>(sums);
  if constexpr (First + w < N) {
    lanes.store(out + First);
    sum_each<First + w>(sums, out);
  } else {
    lanes.store(out + First, static_cast<dim_t>(N - First));
  }
}
#endif

/// sums[r * Taps + s] = sum over images and positions of dy's row r times the image at offsets[s].
template <std::size_t Taps, std::size_t S, class T, std::size_t... R>
IKEBANA_CPU_INLINE void meet_tap(vec<T>* sums, const vec<T>* rows, vec<T> x,
                                 std::index_sequence<R...>) {
  ((sums[R * Taps + S] = fma(rows[R], x, sums[R * Taps + S])), ...);
}
template <class T, std::size_t... R, std::size_t... S, std::size_t... I>
IKEBANA_CPU_INLINE void dot_tile(const detail::dot_job<T>& job, T* out, std::index_sequence<R...>,
                                 std::index_sequence<S...>, std::index_sequence<I...>) {
  constexpr dim_t w = vec<T>::size;
  vec<T> sums[] = {(static_cast<void>(I), vec<T>::zero())...};
  const T *dy = job.dy, *x = job.x;
  const dim_t row = job.dy_row, whole = job.steps / w * w, left = job.steps - whole;
  for (dim_t image = 0; image < job.images; ++image, dy += job.dy_image, x += job.x_image) {
    const T* const taps[] = {x + job.offsets[S]...};
    for (dim_t at = 0; at < whole; at += w) {
      const vec<T> rows[] = {vec<T>::load(dy + static_cast<dim_t>(R) * row + at)...};
      (meet_tap<sizeof...(S), S>(sums, rows, vec<T>::load(taps[S] + at),
                                 std::index_sequence<R...>{}),
       ...);
    }
    if (left > 0) {
      const vec<T> rows[] = {vec<T>::load(dy + static_cast<dim_t>(R) * row + whole, left)...};
      (meet_tap<sizeof...(S), S>(sums, rows, vec<T>::load(taps[S] + whole, left),
                                 std::index_sequence<R...>{}),
       ...);
    }
  }
  sum_each(sums, out);
}
template <class T, int Rows, int Taps>
[[gnu::noinline]] void dot_tile(const detail::dot_job<T>& job, T* out) {
  dot_tile(job, out, std::make_index_sequence<std::size_t{Rows}>{},
           std::make_index_sequence<std::size_t{Taps}>{},
           std::make_index_sequence<std::size_t{Rows} * Taps>{});
}
