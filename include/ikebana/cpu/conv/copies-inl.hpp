// How convolutions (tiles.hpp) copy: rows of an image, what lies across it, panels, results.

template <class T>
IKEBANA_CPU_INLINE void copy_few(T* to, const T* from, dim_t n) {
  constexpr dim_t w = vec<T>::size;
  if (n < w) return vec<T>::load(from, n).store(to, n);
  // The last register overlaps the one before: cheaper than a partial one.
  for (dim_t i = 0; i < n - w; i += w) vec<T>::load(from + i).store(to + i);
  vec<T>::load(from + n - w).store(to + n - w);
}
template <class T>
IKEBANA_CPU_INLINE void clear_few(T* to, dim_t n) {
  constexpr dim_t w = vec<T>::size;
  if (n >= w && n <= 2 * w) {
    vec<T>::zero().store(to);
    return vec<T>::zero().store(to + n - w);
  }
  for (; n >= w; n -= w, to += w) vec<T>::zero().store(to);
  if (n > 0) vec<T>::zero().store(to, n);
}
template <class T>
void clear_array(T* to, dim_t n) {
  clear_few(to, n);
}

template <class T>
void fill_rows(dim_t rows, dim_t length, const T* values, T* to, dim_t step) {
  constexpr dim_t w = vec<T>::size;
  for (; rows > 0; --rows, ++values, to += step) {
    const vec<T> value = vec<T>::broadcast(*values);
    dim_t i = 0;
    for (; i + w <= length; i += w) value.store(to + i);
    if (i < length) value.store(to + i, length - i);
  }
}

/// Clears at least n elements by whole registers, of which one is mostly enough: no call.
template <class T>
IKEBANA_CPU_INLINE void clear_over(T* to, dim_t n) {
  constexpr dim_t w = vec<T>::size;
  vec<T>::zero().store(to);
  if (n > w) [[unlikely]]
    for (dim_t i = w; i < n; i += w) vec<T>::zero().store(to + i);
}

/// Each row of the copy: `lead` zeros, `length` elements of the source, zeros up to `pitch`. What
/// follows the last row for a register may be overwritten, as whole registers spill over what is
/// written later.
template <class T>
void copy_lines(dim_t rows, dim_t lead, dim_t length, const T* from, dim_t from_step, T* to,
                dim_t pitch) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> zero = vec<T>::zero();
  if (length == pitch && length == from_step) return copy_few(to, from, rows * length);
  if (length <= w && pitch <= lead + w && lead <= w) {
    for (; rows > 0; --rows, from += from_step, to += pitch) {
      if (lead > 0) zero.store(to);
      vec<T>::load(from, length).store(to + lead);
    }
    return;
  }
  const dim_t whole = length / w * w, left = length - whole;
  const dim_t end = lead + whole + (left > 0 ? w : 0);
  for (; rows > 0; --rows, from += from_step, to += pitch) {
    if (lead > 0) clear_over(to, lead);
    T* const at = to + lead;
    for (dim_t i = 0; i < whole; i += w) vec<T>::load(from + i).store(at + i);
    if (left > 0) vec<T>::load(from + whole, left).store(at + whole);
    if (end < pitch) clear_over(to + end, pitch - end);
  }
}
/// f(i) for i < n, four at a time: so short a loop else depends on where its code lies.
template <class F>
IKEBANA_CPU_INLINE void each_apart(dim_t n, const F& f) {
  dim_t i = 0;
  for (; i + 4 <= n; i += 4) f(i), f(i + 1), f(i + 2), f(i + 3);
  for (; i < n; ++i) f(i);
}
/// The same of elements that are `stride` apart in the source, which is more than 1.
template <class T>
void copy_apart(dim_t rows, dim_t lead, dim_t length, const T* from, dim_t from_step, dim_t stride,
                T* to, dim_t pitch) {
  constexpr dim_t w = vec<T>::size;
  for (; rows > 0; --rows, from += from_step, to += pitch) {
    if (lead > 0) clear_over(to, lead);
    dim_t first = 0;
    // Whose neighbours all are there.
    if (stride == 2)
      for (; first + w < length; first += w)
        load_pairs(from + 2 * first).even.store(to + lead + first);
    each_apart(
        length - first, [&](dim_t i) __attribute__((always_inline)) {
          to[lead + first + i] = from[(first + i) * stride];
        });
    if (lead + length < pitch) clear_over(to + lead + length, pitch - lead - length);
  }
}

/// Some channels of either.
template <class T, bool Strides>
void copy_planes(const detail::copy_job<T>& job) {
  const T* from = job.from;
  T* to = job.to;
  for (dim_t c = 0; c < job.channels; ++c, from += job.from_channel, to += job.to_channel) {
    if (job.above > 0) clear_few(to, job.above);
    T* const at = to + job.above;
    if (Strides && job.stride > 1)
      copy_apart(job.rows, job.lead, job.length, from, job.from_step, job.stride, at, job.pitch);
    else
      copy_lines(job.rows, job.lead, job.length, from, job.from_step, at, job.pitch);
    if (job.below > 0) clear_few(at + job.rows * job.pitch, job.below);
  }
}

/// Puts rows of `length` elements in their places, which are `stride` apart.
template <class T, bool Strides>
void place_rows(dim_t rows, dim_t length, const T* from, dim_t from_step, T* to, dim_t to_step,
                dim_t stride) {
  if (Strides && stride > 1) {
    for (; rows > 0; --rows, from += from_step, to += to_step)
      each_apart(
          length, [&](dim_t i) __attribute__((always_inline)) { to[i * stride] = from[i]; });
    return;
  }
  if (length == from_step && length == to_step) return copy_few(to, from, rows * length);
  for (; rows > 0; --rows, from += from_step, to += to_step) copy_few(to, from, length);
}

/// A register of what all taps add at a time: neighbouring taps would wait for each other's sums.
template <class T>
void add_rows(const detail::add_job<T>& job) {
  using index = typename number<T>::bits;
  using distance = std::make_unsigned_t<index>;
  constexpr dim_t w = vec<T>::size;
  const T* from = job.from;
  T* to = job.to;
  for (dim_t c = 0; c < job.channels; ++c, from += job.from_channel, to += job.to_channel) {
    if (job.stride > 1) {
      for (dim_t k = 0; k < job.taps; ++k) {
        const dim_t first = job.first + k * job.dilation;
        const auto i = detail::positions_inside(job.length, first, job.stride, job.columns);
        T* const at = to + first + i.begin * job.stride;
        const T* const row = from + k * job.from_tap + i.begin;
        dim_t n = 0;
        if (job.stride == 2)
          for (; n + w < i.end - i.begin; n += w) {
            const even_odd<T> pairs = load_pairs(at + 2 * n);
            store_pairs(pairs.even + vec<T>::load(row + n), pairs.odd, at + 2 * n);
          }
        each_apart(
            i.end - i.begin - n, [&](dim_t m) __attribute__((always_inline)) {
              at[(n + m) * job.stride] += row[n + m];
            });
      }
      continue;
    }
    // Of a long row a block meets a part.
    const dim_t end =
        detail::least(job.columns, job.first + (job.taps - 1) * job.dilation + job.length);
    for (dim_t i = job.first > 0 ? job.first : 0; i < end; i += w) {
      const dim_t lanes = detail::least(end - i, w);
      vec<T> sum = load_lanes(to + i, lanes);
      const T* row = from;
      dim_t at = i - job.first;
      for (dim_t k = 0; k < job.taps; ++k, row += job.from_tap, at -= job.dilation) {
        if (at <= -w || at >= job.length) continue;
        const auto there =
            as<distance>(lane_numbers<T>() + bits_of<T>::broadcast(static_cast<index>(at))) <
            vec<distance>::broadcast(static_cast<distance>(job.length));
        sum = sum + select(lane_mask<T>{there.m}, vec<T>::load(row + at), vec<T>::zero());
      }
      store_lanes(sum, to + i, lanes);
    }
  }
}

template <class T, std::size_t... I>
IKEBANA_CPU_INLINE void place_block(dim_t rows, dim_t positions, const T* from, dim_t from_step,
                                    vec<T> start, bool relu, T* to, dim_t to_step,
                                    std::index_sequence<I...>) {
  constexpr dim_t w = vec<T>::size;
  vec<T> block[w];
  // The last again, where there are no more.
  ((block[I] = vec<T>::load(from) + start,
    from += static_cast<dim_t>(I) + 1 < positions ? from_step : 0),
   ...);
  if (relu) ((block[I] = max(vec<T>::zero(), block[I])), ...);
  transpose_block(block);
  for (dim_t r = 0; r < rows; ++r, to += to_step)
    positions == w ? block[r].store(to) : block[r].store(to, positions);
}
/// to[r * to_step + i] = from[i * from_step + r] + bias[r], or the positive part of it. Reads whole
/// registers.
template <class T>
void place_across(dim_t rows, dim_t positions, const T* from, dim_t from_step, const T* bias,
                  bool relu, T* to, dim_t to_step) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t r = 0; r < rows; r += w) {
    const dim_t used = rows - r < w ? rows - r : w;
    const vec<T> start = bias != nullptr ? vec<T>::load(bias + r, used) : vec<T>::zero();
    for (dim_t i = 0; i < positions; i += w)
      place_block(used, positions - i < w ? positions - i : w, from + i * from_step + r, from_step,
                  start, relu, to + r * to_step + i, to_step,
                  std::make_index_sequence<static_cast<std::size_t>(w)>{});
  }
}

template <class T>
void finish_rows(dim_t rows, dim_t length, T* y, dim_t step, const detail::conv_rest<T>& rest,
                 const T* residual) {
  constexpr dim_t w = vec<T>::size;
  if (rest.scale != nullptr)
    for (dim_t r = 0; r < rows; ++r) {
      T* const to = y + r * step;
      const vec<T> scale = vec<T>::broadcast(rest.scale[r]),
                   shift = vec<T>::broadcast(rest.shift == nullptr ? T(0) : rest.shift[r]);
      dim_t i = 0;
      for (; i + w <= length; i += w) fma(scale, vec<T>::load(to + i), shift).store(to + i);
      if (i < length) fma(scale, vec<T>::load(to + i, length - i), shift).store(to + i, length - i);
    }
  if (residual != nullptr)
    for (dim_t r = 0; r < rows; ++r) {
      T* const to = y + r * step;
      const T* const from = residual + r * step;
      dim_t i = 0;
      for (; i + w <= length; i += w) (vec<T>::load(to + i) + vec<T>::load(from + i)).store(to + i);
      if (i < length)
        (vec<T>::load(to + i, length - i) + vec<T>::load(from + i, length - i))
            .store(to + i, length - i);
    }
  rest.function(rows, length, y, step);
}
