// Depthwise convolutions straight from the source (depthwise_sweep.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
// Straight from the source, where partial loads are cheap: `masks` say which
// columns are in it.
#if IKEBANA_CPU_WIDTH == 64
template <class T>
struct column_mask {
  using type = std::uint16_t;
};
template <class T>
IKEBANA_CPU_INLINE std::uint16_t mask_between(dim_t first, dim_t last) {
  return static_cast<std::uint16_t>(first_lanes(last) & ~first_lanes(first));
}
IKEBANA_CPU_INLINE vec<float> load_where(const float* p, std::uint16_t mask) {
  return {_mm512_maskz_loadu_ps(mask, p)};
}
IKEBANA_CPU_INLINE vec<double> load_where(const double* p, std::uint16_t mask) {
  return {_mm512_maskz_loadu_pd(static_cast<__mmask8>(mask), p)};
}
#else
template <class T>
struct column_mask {
  using type = __m256i;
};
template <class T>
IKEBANA_CPU_INLINE __m256i mask_between(dim_t first, dim_t last) {
  constexpr int bytes = static_cast<int>(sizeof(T));
  return _mm256_andnot_si256(first_lanes<bytes>(first), first_lanes<bytes>(last));
}
IKEBANA_CPU_INLINE vec<float> load_where(const float* p, __m256i mask) {
  return {_mm256_maskload_ps(p, mask)};
}
IKEBANA_CPU_INLINE vec<double> load_where(const double* p, __m256i mask) {
  return {_mm256_maskload_pd(p, mask)};
}
#endif

/// For each register of a row and each kernel column, which lanes are in the
/// source and, forward, in the result.
template <class T>
void find_masks(dim_t length, dim_t width, dim_t kernel_columns, const dim_t* columns, void* to) {
  constexpr dim_t w = vec<T>::size;
  auto* mask = static_cast<typename column_mask<T>::type*>(to);
  const auto within = [](dim_t n) { return n < 0 ? 0 : n > w ? w : n; };
  for (dim_t j = 0; j < length; j += w)
    for (dim_t k = 0; k < kernel_columns; ++k, ++mask) {
      const dim_t at = j + columns[k], left = width - at, right = length - j;
      *mask = mask_between<T>(within(-at), within(left < right ? left : right));
    }
}

/// Rows some step apart, by few addresses: three rows share one.
template <int Rows, class T>
struct row_addresses {
  const T* third[(Rows + 2) / 3];
  dim_t step;

  IKEBANA_CPU_INLINE row_addresses(const T* x, dim_t row_step) : step{row_step} {
#pragma GCC unroll 8
    for (int i = 0; i < (Rows + 2) / 3; ++i) third[i] = x + 3 * i * row_step;
  }
  IKEBANA_CPU_INLINE const T* row(std::size_t i) const {
    return third[i / 3] + static_cast<dim_t>(i % 3) * step;
  }
};

template <int Kernel, class T, class L, std::size_t... R, std::size_t... K, std::size_t... I>
IKEBANA_CPU_INLINE void meet_kernel_column(vec<T>* sums, const vec<T>* weights, L load,
                                           std::index_sequence<R...>, std::index_sequence<K...>,
                                           std::index_sequence<I...>) {
  if constexpr (sizeof...(R) + sizeof...(K) + sizeof...(I) < register_count) {
    const vec<T> rows[] = {load(I)...};
    (meet_kernel_row<1, K>(sums, weights[K], rows, std::index_sequence<R...>{}), ...);
  } else {
    (meet_row<Kernel, 1, static_cast<int>(I)>(sums, weights, load(I), std::index_sequence<R...>{}),
     ...);
  }
}

template <bool Edge, int Kernel, class T, std::size_t... R, std::size_t... K, std::size_t... I>
IKEBANA_CPU_INLINE void sweep_rows(const detail::depthwise_sweep<T>& job,
                                   std::index_sequence<R...> r, std::index_sequence<K...> k,
                                   std::index_sequence<I...> seen) {
  constexpr dim_t w = vec<T>::size;
  constexpr int rows = static_cast<int>(sizeof...(I));
  const auto* mask = static_cast<const typename column_mask<T>::type*>(job.masks);
  const dim_t weight_step = job.weight_step, first_row = job.first_row, last_row = job.last_row,
              row_step = job.row_step;
  const auto is_outside = [=](std::size_t i) {
    return Edge && (static_cast<dim_t>(i) < first_row || static_cast<dim_t>(i) >= last_row);
  };
  // Where they all find room, the weights stay in registers.
  if constexpr (Kernel == 3 && register_count == 32) {
    if (job.kernel_columns == 3 && job.columns[1] == job.columns[0] + 1 &&
        job.columns[2] == job.columns[0] + 2) {
      const auto weight = [&](std::size_t i) {
        return in_register(vec<T>::broadcast(
            job.weights[job.column_weights[i / 3] + static_cast<dim_t>(i % 3) * weight_step]));
      };
      const vec<T> weights[] = {weight(0), weight(1), weight(2), weight(3), weight(4),
                                weight(5), weight(6), weight(7), weight(8)};
      for (dim_t j = 0; j < job.length; j += w, mask += 3) {
        vec<T> sums[] = {(static_cast<void>(R), vec<T>::broadcast(job.start))...};
        const row_addresses<rows, T> at(job.image + job.columns[0] + j, job.row_step);
        const auto loads = [&](dim_t column) __attribute__((always_inline)) {
          return [&, column ](std::size_t i) __attribute__((always_inline)) {
            return is_outside(i) ? vec<T>::zero()
                                 : in_register(load_where(at.row(i) + column, mask[column]));
          };
        };
        meet_kernel_column<3>(sums, weights, loads(0), r, k, seen);
        meet_kernel_column<3>(sums, weights + 3, loads(1), r, k, seen);
        meet_kernel_column<3>(sums, weights + 6, loads(2), r, k, seen);
        store_row_sums(sums, job.relu, job.out + j, job.out_step, job.rows, job.length - j, r);
      }
      return;
    }
  }
  for (dim_t j = 0; j < job.length; j += w) {
    vec<T> sums[] = {(static_cast<void>(R), vec<T>::broadcast(job.start))...};
    for (dim_t kx = 0; kx < job.kernel_columns; ++kx, ++mask) {
      const T* const weight = job.weights + job.column_weights[kx];
      const vec<T> weights[] = {
          in_register(vec<T>::broadcast(weight[static_cast<dim_t>(K) * weight_step]))...};
      const T* const x = job.image + j + job.columns[kx];
      const auto where = *mask;
      const auto load = [&](std::size_t i) __attribute__((always_inline)) {
        return is_outside(i) ? vec<T>::zero()
                             : in_register(load_where(x + static_cast<dim_t>(i) * row_step, where));
      };
      meet_kernel_column<Kernel>(sums, weights, load, r, k, seen);
    }
    store_row_sums(sums, job.relu, job.out + j, job.out_step, job.rows, job.length - j, r);
  }
}
/// As slide_rows, of one plane that was not copied.
template <class T, int Kernel, int Rows>
[[gnu::noinline]] void sweep_rows(const detail::depthwise_sweep<T>& job) {
  constexpr auto rows = std::make_index_sequence<std::size_t{Rows}>{};
  constexpr auto kernel = std::make_index_sequence<std::size_t{Kernel}>{};
  constexpr auto seen = std::make_index_sequence<std::size_t{Rows + Kernel - 1}>{};
  if (job.first_row <= 0 && job.last_row >= Rows + Kernel - 1)
    sweep_rows<false, Kernel>(job, rows, kernel, seen);
  else
    sweep_rows<true, Kernel>(job, rows, kernel, seen);
}
/// One row of the source, as the rows of dy that see it do, in `Columns`
/// columns of the kernel: every sum is met once, so that none waits for the one
/// before.
template <int Kernel, int I, class T, std::size_t R, std::size_t... S>
IKEBANA_CPU_INLINE void meet_row_gradients(vec<T>* sums, const vec<T> (&dy)[R], const vec<T>* x,
                                           std::index_sequence<S...>) {
  const auto meet = [&](auto sum) __attribute__((always_inline)) {
    constexpr int k = static_cast<int>(decltype(sum)::value) % Kernel, r = I - k;
    constexpr std::size_t column = decltype(sum)::value / Kernel;
    if constexpr (r >= 0 && r < static_cast<int>(R))
      sums[decltype(sum)::value] = fma(dy[r], x[column], sums[decltype(sum)::value]);
  };
  (meet(std::integral_constant<std::size_t, S>{}), ...);
}
template <bool Edge, int Kernel, class T, std::size_t... R, std::size_t... C, std::size_t... I,
          class S>
IKEBANA_CPU_INLINE void sweep_block(const detail::depthwise_gradient<T>& job, vec<T>* sums,
                                    dim_t row, dim_t first_column, std::index_sequence<R...>,
                                    std::index_sequence<C...>, std::index_sequence<I...>, S every) {
  constexpr dim_t w = vec<T>::size;
  const auto* mask = static_cast<const typename column_mask<T>::type*>(job.masks) + first_column;
  const dim_t last = job.kernel_columns - first_column - 1, first_row = job.padding - row,
              last_row = job.height + job.padding - row, row_step = job.row_step,
              dy_step = job.dy_step;
  const auto column_of = [=](dim_t c) { return c < last ? c : last; };
  const dim_t columns[] = {job.columns[first_column + column_of(static_cast<dim_t>(C))]...};
  const T* const image = job.image + row * row_step;
  for (dim_t j = 0; j < job.length; j += w, mask += job.kernel_columns) {
    const T* const given = job.dy + row * dy_step + j;
    const T* const from[] = {image + j + columns[C]...};
    const typename column_mask<T>::type where[] = {mask[column_of(static_cast<dim_t>(C))]...};
    vec<T> dy[sizeof...(R)];
    const auto step = [&](auto at) __attribute__((always_inline)) {
      constexpr std::size_t i = decltype(at)::value;
      if constexpr (i < sizeof...(R))
        dy[i] = in_register(load_some(given + static_cast<dim_t>(i) * dy_step, job.length - j));
      if (Edge && (static_cast<dim_t>(i) < first_row || static_cast<dim_t>(i) >= last_row)) return;
      const vec<T> x[] = {
          in_register(load_where(from[C] + static_cast<dim_t>(i) * row_step, where[C]))...};
      meet_row_gradients<Kernel, static_cast<int>(i)>(sums, dy, x, every);
    };
    (step(std::integral_constant<std::size_t, I>{}), ...);
  }
}
/// The sums of one plane, not copied; as depthwise_dot_rows.
template <class T, int Kernel, int Columns, std::size_t... S>
IKEBANA_CPU_INLINE void sweep_gradients(const detail::depthwise_gradient<T>& job,
                                        std::index_sequence<S...>) {
  constexpr dim_t w = vec<T>::size, rows = 7;
  using every = std::index_sequence<S...>;
  using columns = std::make_index_sequence<std::size_t{Columns}>;
  using seven = std::make_index_sequence<7>;
  using one = std::make_index_sequence<1>;
  for (dim_t first = 0; first < job.kernel_columns; first += Columns) {
    vec<T> sums[] = {(static_cast<void>(S), vec<T>::zero())...};
    dim_t row = 0;
    for (; row + rows <= job.rows; row += rows) {
      using seen = std::make_index_sequence<std::size_t{Kernel} + 6>;
      if (row >= job.padding && row + rows + Kernel - 1 <= job.height + job.padding)
        sweep_block<false, Kernel>(job, sums, row, first, seven{}, columns{}, seen{}, every{});
      else
        sweep_block<true, Kernel>(job, sums, row, first, seven{}, columns{}, seen{}, every{});
    }
    for (; row < job.rows; ++row)
      sweep_block<true, Kernel>(job, sums, row, first, one{}, columns{},
                                std::make_index_sequence<std::size_t{Kernel}>{}, every{});
    const auto add = [&](std::size_t i, vec<T> found) __attribute__((always_inline)) {
      const dim_t kx = first + static_cast<dim_t>(i) / Kernel, ky = static_cast<dim_t>(i) % Kernel;
      if (kx >= job.kernel_columns) return;
      T* const to = job.sums + (ky * job.kernel_columns + kx) * w;
      (vec<T>::load(to) + found).store(to);
    };
    (add(S, sums[S]), ...);
  }
}
template <class T, int Kernel, int Columns>
[[gnu::noinline]] void sweep_gradients(const detail::depthwise_gradient<T>& job) {
  sweep_gradients<T, Kernel, Columns>(job,
                                      std::make_index_sequence<std::size_t{Kernel} * Columns>{});
}
#endif
