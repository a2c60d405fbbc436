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

#if IKEBANA_CPU_WIDTH == 0
template <class T>
IKEBANA_CPU_INLINE vec<T> even_lanes(vec<T> a, vec<T>) {
  return a;
}
template <class T, bool>
IKEBANA_CPU_INLINE vec<T> spread_lanes(vec<T> old, vec<T> a) {
  return {(static_cast<void>(old), a.v)};
}
#else
template <class R, std::size_t... L>
IKEBANA_CPU_INLINE R even_lanes_of(R a, R b, std::index_sequence<L...>) {
  return __builtin_shufflevector(a, b, static_cast<int>(2 * L)...);
}
/// Every other element of a, then of b.
template <class T>
IKEBANA_CPU_INLINE vec<T> even_lanes(vec<T> a, vec<T> b) {
  return {even_lanes_of(a.v, b.v, std::make_index_sequence<std::size_t(vec<T>::size)>{})};
}
template <bool Upper, class R, std::size_t... L>
IKEBANA_CPU_INLINE R spread_lanes_of(R old, R a, std::index_sequence<L...>) {
  constexpr std::size_t n = sizeof...(L);
  return __builtin_shufflevector(
      old, a,
      (L % 2 == 0 ? static_cast<int>(n + L / 2 + (Upper ? n / 2 : 0)) : static_cast<int>(L))...);
}
/// `old` with its even lanes replaced by one half of a.
template <class T, bool Upper>
IKEBANA_CPU_INLINE vec<T> spread_lanes(vec<T> old, vec<T> a) {
  return {
      spread_lanes_of<Upper>(old.v, a.v, std::make_index_sequence<std::size_t(vec<T>::size)>{})};
}
#endif

/// Each row of the copy: `lead` zeros, `length` elements of the source, zeros up to `pitch`. What
/// follows the last row for a register may be overwritten, as whole registers spill over what is
/// written later.
template <class T>
void copy_rows(dim_t rows, dim_t lead, dim_t length, const T* from, dim_t from_step, dim_t stride,
               T* to, dim_t pitch) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> zero = vec<T>::zero();
  if (stride == 1 && length == pitch && length == from_step)
    return copy_few(to, from, rows * length);
  if (stride == 1 && length <= w && pitch <= lead + w && lead <= w) {
    for (; rows > 0; --rows, from += from_step, to += pitch) {
      if (lead > 0) zero.store(to);
      vec<T>::load(from, length).store(to + lead);
    }
  } else if (stride == 1) {
    const dim_t whole = length / w * w, left = length - whole;
    const dim_t end = lead + whole + (left > 0 ? w : 0);
    for (; rows > 0; --rows, from += from_step, to += pitch) {
      for (dim_t i = 0; i < lead; i += w) zero.store(to + i);
      T* const at = to + lead;
      for (dim_t i = 0; i < whole; i += w) vec<T>::load(from + i).store(at + i);
      if (left > 0) vec<T>::load(from + whole, left).store(at + whole);
      for (dim_t i = end; i < pitch; i += w) zero.store(to + i);
    }
  } else if (stride == 2 && w > 1) {
    const dim_t whole = (length - 1) / w * w, left = 2 * (length - whole) - 1;
    const dim_t first = left < w ? left : w, second = left - first, skip = second > 0 ? w : 0;
    for (; rows > 0; --rows, from += from_step, to += pitch) {
      for (dim_t i = 0; i < lead; i += w) zero.store(to + i);
      T* const at = to + lead;
      for (dim_t i = 0; i < whole; i += w)
        even_lanes(vec<T>::load(from + 2 * i), vec<T>::load(from + 2 * i + w)).store(at + i);
      const T* const last = from + 2 * whole;
      even_lanes(vec<T>::load(last, first), vec<T>::load(last + skip, second)).store(at + whole);
      for (dim_t i = lead + whole + w; i < pitch; i += w) zero.store(to + i);
    }
  } else {
    for (; rows > 0; --rows, from += from_step, to += pitch) {
      for (dim_t i = 0; i < lead; ++i) to[i] = T(0);
      for (dim_t i = 0; i < length; ++i) to[lead + i] = from[i * stride];
      for (dim_t i = lead + length; i < pitch; ++i) to[i] = T(0);
    }
  }
}

/// Puts rows of `length` elements in their places, `stride` apart there. What lies between them is
/// read and written back.
template <class T>
void place_rows(dim_t rows, dim_t length, const T* from, dim_t from_step, T* to, dim_t to_step,
                dim_t stride) {
  constexpr dim_t w = vec<T>::size;
  if (stride == 1 && length == from_step && length == to_step)
    return copy_few(to, from, rows * length);
  for (; rows > 0; --rows, from += from_step, to += to_step) {
    if (stride == 1) {
      copy_few(to, from, length);
    } else if (stride == 2 && w > 1) {
      dim_t i = 0;
      for (; i + w < length; i += w) {
        const vec<T> a = vec<T>::load(from + i);
        T* const at = to + 2 * i;
        spread_lanes<T, false>(vec<T>::load(at), a).store(at);
        spread_lanes<T, true>(vec<T>::load(at + w), a).store(at + w);
      }
      const vec<T> a = vec<T>::load(from + i, length - i);
      T* const at = to + 2 * i;
      const dim_t left = 2 * (length - i) - 1, first = left < w ? left : w;
      spread_lanes<T, false>(vec<T>::load(at, first), a).store(at, first);
      if (left > w)
        spread_lanes<T, true>(vec<T>::load(at + w, left - w), a).store(at + w, left - w);
    } else {
      for (dim_t i = 0; i < length; ++i) to[i * stride] = from[i];
    }
  }
}

template <class T, std::size_t... I>
IKEBANA_CPU_INLINE void place_block(dim_t rows, dim_t positions, const T* from, dim_t from_step,
                                    vec<T> start, bool relu, T* to, dim_t to_step,
                                    std::index_sequence<I...>) {
  constexpr dim_t w = vec<T>::size;
  vec<T> block[w];
  if (positions == w)
    ((block[I] = vec<T>::load(from + static_cast<dim_t>(I) * from_step) + start), ...);
  else
    ((block[I] = static_cast<dim_t>(I) < positions
                     ? vec<T>::load(from + static_cast<dim_t>(I) * from_step) + start
                     : start),
     ...);
  if (relu) ((block[I] = max(vec<T>::zero(), block[I])), ...);
  transpose_block(block);
  if (rows == w && positions == w)
    (block[I].store(to + static_cast<dim_t>(I) * to_step), ...);
  else
    ((static_cast<dim_t>(I) < rows ? block[I].store(to + static_cast<dim_t>(I) * to_step, positions)
                                   : static_cast<void>(0)),
     ...);
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
  activate_block(rest.function, rows, length, y, step);
}

/// panel[p * panel_step + move.to + l] = copy[image_at[p] + move.from + l].
template <class T>
void pack_panel(dim_t depth, const T* copy, const std::int32_t* image_at,
                const detail::conv_move* moves, dim_t count, T* panel, dim_t panel_step) {
  constexpr dim_t w = vec<T>::size;
  for (; count > 0; --count, ++moves) {
    const T* const from = copy + moves->from;
    T* to = panel + moves->to;
    const dim_t lanes = moves->lanes;
    if (lanes == w)
      for (dim_t p = 0; p < depth; ++p, to += panel_step)
        vec<T>::load(from + image_at[p]).store(to);
    else
      for (dim_t p = 0; p < depth; ++p, to += panel_step)
        vec<T>::load(from + image_at[p], lanes).store(to, lanes);
  }
}
