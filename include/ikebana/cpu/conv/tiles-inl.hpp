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

template <class T, int Rows, int Weights, std::size_t... J, std::size_t... I>
IKEBANA_CPU_INLINE void dot_tile(const detail::dot_job<T>& job, std::index_sequence<J...>,
                                 std::index_sequence<I...>) {
  constexpr std::size_t n = Weights;
  constexpr dim_t w = vec<T>::size;
  vec<T> sums[] = {(static_cast<void>(I), vec<T>::zero())...};
  const T *dy = job.dy, *line = job.x;
  const dim_t dy_row = job.dy_row, x_step = job.x_step, at[] = {dim_t{job.at[J]}...};
  for (dim_t y = job.lines; y > 0; --y, line += job.x_line) {
    const T* x = line;
    for (dim_t columns = job.columns; columns > 0; --columns, dy += w, x += x_step) {
      const vec<T> met[n] = {vec<T>::load(x + at[J])...};
      vec<T> factor;
      ((I % n == 0
            ? static_cast<void>(factor = vec<T>::load(dy + static_cast<dim_t>(I / n) * dy_row))
            : void(),
        sums[I] = fma(factor, met[I % n], sums[I])),
       ...);
    }
  }
  const auto put = [&](dim_t i, vec<T> all) __attribute__((always_inline)) {
    T& out = job.out[i / Weights * job.out_row + i % Weights];
    out = sum(all) + (job.adds ? out : T(0));
  };
  (put(static_cast<dim_t>(I), sums[I]), ...);
}
template <class T, int Rows, int Weights>
[[gnu::noinline]] void dot_tile(const detail::dot_job<T>& job) {
  dot_tile<T, Rows, Weights>(job, std::make_index_sequence<Weights>{},
                             std::make_index_sequence<std::size_t{Rows} * Weights>{});
}
