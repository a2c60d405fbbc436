// What a convolution of few channels a group (conv_depthwise.hpp) does by
// vectors.

/// to[i * phases + p] = from[p * phase_step + i]: rows whose columns were found
/// apart.
template <class T>
void interleave_rows(dim_t rows, dim_t phases, const T* from, dim_t from_step, dim_t phase_step,
                     T* to, dim_t to_step, dim_t length) {
  constexpr dim_t w = vec<T>::size;
  for (; rows > 0; --rows, from += from_step, to += to_step) {
    dim_t i = 0;
    if (phases == 2)
      for (; 2 * (i + w) <= length; i += w)
        store_pairs(vec<T>::load(from + i), vec<T>::load(from + phase_step + i), to + 2 * i);
    for (dim_t at = i * phases; at < length; ++i)
      for (dim_t p = 0; p < phases && at < length; ++p, ++at) to[at] = from[p * phase_step + i];
  }
}

#if IKEBANA_CPU_WIDTH == 64 || IKEBANA_CPU_ARM64
inline constexpr std::size_t register_count = 32;
#else
inline constexpr std::size_t register_count = 16;
#endif

/// Stores the first `lanes` of the first `rows` sums.
template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void store_row_sums(vec<T>* sums, bool relu, T* out, dim_t out_step, dim_t rows,
                                       dim_t lanes, std::index_sequence<R...>) {
  if (relu) ((sums[R] = max(vec<T>::zero(), sums[R])), ...);
  if (lanes >= vec<T>::size && rows >= static_cast<dim_t>(sizeof...(R))) {
    (sums[R].store(out + static_cast<dim_t>(R) * out_step), ...);
  } else {
    if (lanes > vec<T>::size) lanes = vec<T>::size;
    ((static_cast<dim_t>(R) < rows ? sums[R].store(out + static_cast<dim_t>(R) * out_step, lanes)
                                   : void()),
     ...);
  }
}

/// One kernel row for all output rows, so that no sum waits for the one before.
template <int Stride, std::size_t K, class T, std::size_t... R>
IKEBANA_CPU_INLINE void meet_kernel_row(vec<T>* sums, vec<T> weight, const vec<T>* rows,
                                        std::index_sequence<R...>) {
  ((sums[R] = fma(weight, rows[R * Stride + K], sums[R])), ...);
}
/// One row of the copy, as all output rows that see it do: row I is seen by
/// output row R as kernel row I - R * Stride.
template <int Kernel, int Stride, int I, int R, class T>
IKEBANA_CPU_INLINE void meet_row(vec<T>* sums, const vec<T>* weights, vec<T> x) {
  constexpr int k = I - R * Stride;
  if constexpr (k >= 0 && k < Kernel) sums[R] = fma(weights[k], x, sums[R]);
}
template <int Kernel, int Stride, int I, class T, std::size_t... R>
IKEBANA_CPU_INLINE void meet_row(vec<T>* sums, const vec<T>* weights, vec<T> x,
                                 std::index_sequence<R...>) {
  (meet_row<Kernel, Stride, I, static_cast<int>(R)>(sums, weights, x), ...);
}
template <int Kernel, int Stride, class T, std::size_t... R, std::size_t... K, std::size_t... I>
IKEBANA_CPU_INLINE void slide_rows(const detail::depthwise_slide<T>& job, std::index_sequence<R...>,
                                   std::index_sequence<K...>, std::index_sequence<I...>) {
  constexpr dim_t w = vec<T>::size;
  const dim_t row_step = job.row_step, weight_step = job.weight_step;
  for (dim_t j = 0; j < job.length; j += w) {
    vec<T> sums[] = {(static_cast<void>(R), vec<T>::broadcast(job.start))...};
    for (dim_t s = 0; s < job.slabs; ++s) {
      const T* const slab = job.image + s * job.slab_step + j;
      const T* const from = job.weights + job.slab_weights[s];
      for (dim_t kx = 0; kx < job.kernel_columns; ++kx) {
        const T* const x = slab + job.columns[kx];
        const T* const weight = from + job.column_weights[kx];
        const vec<T> weights[] = {
            in_register(vec<T>::broadcast(weight[static_cast<dim_t>(K) * weight_step]))...};
        if constexpr (sizeof...(R) + sizeof...(K) + sizeof...(I) < register_count) {
          const vec<T> rows[] = {
              in_register(vec<T>::load(x + static_cast<dim_t>(I) * row_step))...};
          (meet_kernel_row<Stride, K>(sums, weights[K], rows, std::index_sequence<R...>{}), ...);
        } else {
          (meet_row<Kernel, Stride, static_cast<int>(I)>(
               sums, weights, in_register(vec<T>::load(x + static_cast<dim_t>(I) * row_step)),
               std::index_sequence<R...>{}),
           ...);
        }
      }
    }
    store_row_sums(sums, job.relu, job.out + j, job.out_step, job.rows, job.length - j,
                   std::index_sequence<R...>{});
  }
}
/// Some output rows at once, so that each load serves them all.
template <class T, int Kernel, int Stride, int Rows>
[[gnu::noinline]] void slide_rows(const detail::depthwise_slide<T>& job) {
  slide_rows<Kernel, Stride>(job, std::make_index_sequence<std::size_t{Rows}>{},
                             std::make_index_sequence<std::size_t{Kernel}>{},
                             std::make_index_sequence<std::size_t{(Rows - 1) * Stride + Kernel}>{});
}

/// x and dy where both have `lanes` elements: what lies behind may not be
/// finite.
template <class T>
IKEBANA_CPU_INLINE vec<T> load_some(const T* p, dim_t lanes) {
  return lanes >= vec<T>::size ? vec<T>::load(p) : vec<T>::load(p, lanes);
}

/// Any kernel: N registers, of N rows or of one.
template <class T, std::size_t... N>
IKEBANA_CPU_INLINE void slide_any(const detail::depthwise_slide<T>& job,
                                  std::index_sequence<N...>) {
  constexpr dim_t w = vec<T>::size, n = static_cast<dim_t>(sizeof...(N));
  const dim_t step = job.along ? w : job.block_step, out_step = job.along ? w : job.out_step;
  const dim_t advance = job.along ? n * w : w;
  for (dim_t j = 0; j < job.length; j += advance) {
    vec<T> sums[] = {(static_cast<void>(N), vec<T>::broadcast(job.start))...};
    for (dim_t s = 0; s < job.slabs; ++s) {
      const T* const slab = job.image + s * job.slab_step + j;
      const T* const from = job.weights + job.slab_weights[s];
      for (dim_t ky = 0; ky < job.kernel_rows; ++ky)
        for (dim_t kx = 0; kx < job.kernel_columns; ++kx) {
          const T* const x = slab + ky * job.row_step + job.columns[kx];
          const vec<T> weight =
              vec<T>::broadcast(from[ky * job.weight_step + job.column_weights[kx]]);
          ((sums[N] = fma(weight, vec<T>::load(x + static_cast<dim_t>(N) * step), sums[N])), ...);
        }
    }
    const dim_t left = job.length - j;
    if (!job.along || left >= advance) {
      store_row_sums(sums, job.relu, job.out + j, out_step, job.along ? n : job.rows, left,
                     std::index_sequence<N...>{});
    } else {
      const dim_t whole = left / w;
      store_row_sums(sums, job.relu, job.out + j, w, whole, w, std::index_sequence<N...>{});
      ((static_cast<dim_t>(N) == whole
            ? sums[N].store(job.out + j + static_cast<dim_t>(N) * w, left - whole * w)
            : void()),
       ...);
    }
  }
}
template <class T>
[[gnu::noinline]] void slide_any(const detail::depthwise_slide<T>& job) {
  slide_any(job, std::make_index_sequence<std::size_t{detail::depthwise_slide<T>::any_rows}>{});
}

/// dw[i] = (accumulate ? dw[i] : 0) + the sum of register i's lanes. There must
/// be room for whole groups of registers.
template <class T>
void add_sums(dim_t n, const T* registers, T* dw, bool accumulate) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t i = 0; i < n; i += w, registers += w * w) {
    const dim_t lanes = n - i < w ? n - i : w;
    vec<T> s = sums_of(registers);
    if (accumulate) s = vec<T>::load(dw + i, lanes) + s;
    s.store(dw + i, lanes);
  }
}

template <int Kernel, int Stride, int I, class T, std::size_t... R>
IKEBANA_CPU_INLINE void meet_gradients(vec<T>* sums, const vec<T>* dy, vec<T> x,
                                       std::index_sequence<R...>) {
  // Two sums for each kernel row, so that they do not wait for each other.
  ((I >= static_cast<int>(R) * Stride && I - static_cast<int>(R) * Stride < Kernel
        ? void(
              sums[I >= static_cast<int>(R) * Stride && I - static_cast<int>(R) * Stride < Kernel
                       ? static_cast<int>(R) % 2 * Kernel + I - static_cast<int>(R) * Stride
                       : 0] =
                  fma(dy[R], x,
                      sums[I >= static_cast<int>(R) * Stride &&
                                   I - static_cast<int>(R) * Stride < Kernel
                               ? static_cast<int>(R) % 2 * Kernel + I - static_cast<int>(R) * Stride
                               : 0]))
        : void()),
   ...);
}
template <int Kernel, int Stride, class T, std::size_t... R, std::size_t... K, std::size_t... I>
IKEBANA_CPU_INLINE void depthwise_dot_rows(const detail::depthwise_dots<T>& job,
                                           std::index_sequence<R...>, std::index_sequence<K...>,
                                           std::index_sequence<I...>) {
  constexpr dim_t w = vec<T>::size, n = static_cast<dim_t>(sizeof...(R));
  for (dim_t kx = 0; kx < job.kernel_columns; ++kx) {
    vec<T> sums[] = {(static_cast<void>(K), vec<T>::zero())...,
                     (static_cast<void>(K), vec<T>::zero())...};
    for (dim_t row = 0; row + n <= job.rows; row += n) {
      const T* const dy = job.dy + row * job.dy_step;
      const T* const x = job.image + job.columns[kx] + row * job.block_step;
      const auto meet = [&](dim_t j, dim_t lanes) __attribute__((always_inline)) {
        const vec<T> rows[] = {
            in_register(load_some(dy + static_cast<dim_t>(R) * job.dy_step + j, lanes))...};
        (meet_gradients<Kernel, Stride, static_cast<int>(I)>(
             sums, rows,
             in_register(load_some(x + static_cast<dim_t>(I) * job.row_step + j, lanes)),
             std::index_sequence<R...>{}),
         ...);
      };
      dim_t j = 0;
      for (; j + w <= job.length; j += w) meet(j, w);
      if (j < job.length) meet(j, job.length - j);
    }
    T* const to = job.sums + kx * w;
    ((vec<T>::load(to + static_cast<dim_t>(K) * job.kernel_columns * w) +
      (sums[K] + sums[K + Kernel]))
         .store(to + static_cast<dim_t>(K) * job.kernel_columns * w),
     ...);
  }
}
/// sums[ky * kernel_columns + kx], a register each, += the products of dy and
/// what it meets, by lanes; of as many whole blocks of rows as there are.
template <class T, int Kernel, int Stride, int Rows>
[[gnu::noinline]] void depthwise_dot_rows(const detail::depthwise_dots<T>& job) {
  depthwise_dot_rows<Kernel, Stride>(
      job, std::make_index_sequence<std::size_t{Rows}>{},
      std::make_index_sequence<std::size_t{Kernel}>{},
      std::make_index_sequence<std::size_t{(Rows - 1) * Stride + Kernel}>{});
}

template <class T, std::size_t... N>
IKEBANA_CPU_INLINE void dot_any(const detail::depthwise_dots<T>& job, std::index_sequence<N...>) {
  constexpr dim_t w = vec<T>::size, n = static_cast<dim_t>(sizeof...(N));
  const dim_t taps = job.kernel_rows * job.kernel_columns;
  for (dim_t tap = 0; tap < taps; tap += n) {
    const auto offset = [&](dim_t t) {
      if (t >= taps) t = tap;
      return t / job.kernel_columns * job.row_step + job.columns[t % job.kernel_columns];
    };
    const dim_t offsets[] = {offset(tap + static_cast<dim_t>(N))...};
    vec<T> sums[] = {(static_cast<void>(N), vec<T>::zero())...};
    for (dim_t row = 0; row < job.rows; ++row) {
      const T* const dy = job.dy + row * job.dy_step;
      const T* const x = job.image + row * job.block_step;
      dim_t j = 0;
      for (; j + w <= job.length; j += w) {
        const vec<T> gradient = vec<T>::load(dy + j);
        ((sums[N] = fma(gradient, vec<T>::load(x + offsets[N] + j), sums[N])), ...);
      }
      if (j < job.length) {
        const dim_t lanes = job.length - j;
        const vec<T> gradient = vec<T>::load(dy + j, lanes);
        ((sums[N] = fma(gradient, vec<T>::load(x + offsets[N] + j, lanes), sums[N])), ...);
      }
    }
    const auto add = [&](dim_t t, vec<T> s) __attribute__((always_inline)) {
      if (t < taps) (vec<T>::load(job.sums + t * w) + s).store(job.sums + t * w);
    };
    (add(tap + static_cast<dim_t>(N), sums[N]), ...);
  }
}
template <class T>
[[gnu::noinline]] void dot_any(const detail::depthwise_dots<T>& job) {
  dot_any(job, std::make_index_sequence<8>{});
}
