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

#if IKEBANA_CPU_WIDTH != 0
/// Lane L is element L Stride + First of the registers 0 ... Part, of which `taken` is register 0
/// or what was taken of those before this.
template <int Stride, int Part, int First, class R, std::size_t... L>
IKEBANA_CPU_INLINE R take_lanes_of(R taken, R a, std::index_sequence<L...>) {
  constexpr int w = sizeof...(L);
  return __builtin_shufflevector(taken, a,
                                 ((static_cast<int>(L) * Stride + First) / w == Part
                                      ? w + (static_cast<int>(L) * Stride + First) % w
                                  : Part == 1 && static_cast<int>(L) * Stride + First < w
                                      ? static_cast<int>(L) * Stride + First
                                      : static_cast<int>(L))...);
}
/// `old` where Stride does not divide the number of an element, else the next of a's lanes.
template <int Stride, int Part, class R, std::size_t... L>
IKEBANA_CPU_INLINE R spread_lanes_of(R old, R a, std::index_sequence<L...>) {
  constexpr int w = sizeof...(L);
  return __builtin_shufflevector(old, a,
                                 ((Part * w + static_cast<int>(L)) % Stride == 0
                                      ? w + (Part * w + static_cast<int>(L)) / Stride
                                      : static_cast<int>(L))...);
}
#endif
/// The registers that hold the first of so many elements: where they begin and how many are theirs.
template <int Stride, class T>
struct strided_parts {
  dim_t at[Stride], lanes[Stride];
  explicit strided_parts(dim_t count) {
    for (int i = 0; i < Stride; ++i) {
      const dim_t begin = i * vec<T>::size, left = count > begin ? count - begin : 0;
      at[i] = left > 0 ? begin : 0;
      lanes[i] = left < vec<T>::size ? left : vec<T>::size;
    }
  }
};
/// A register of every Stride-th element, of all it has room for or of those of `parts`.
template <int Stride, bool Whole, class T, std::size_t... Part>
IKEBANA_CPU_INLINE vec<T> load_strided(const T* from,
                                       [[maybe_unused]] const strided_parts<Stride, T>& parts,
                                       std::index_sequence<Part...>) {
#if IKEBANA_CPU_WIDTH == 0
  return vec<T>::load(from);
#else
  vec<T> taken;
  const auto take = [&](auto part) __attribute__((always_inline)) {
    constexpr std::size_t i = decltype(part)::value;
    const vec<T> met = Whole ? vec<T>::load(from + static_cast<dim_t>(i) * vec<T>::size)
                             : vec<T>::load(from + parts.at[i], parts.lanes[i]);
    if constexpr (i == 0)
      taken = met;
    else
      taken.v = take_lanes_of<Stride, static_cast<int>(i), 0>(
          taken.v, met.v, std::make_index_sequence<std::size_t(vec<T>::size)>{});
  };
  (take(std::integral_constant<std::size_t, Part>{}), ...);
  return taken;
#endif
}
/// Puts a's lanes in the place of every Stride-th element, as above.
template <int Stride, bool Whole, class T, std::size_t... Part>
IKEBANA_CPU_INLINE void store_strided(T* to, [[maybe_unused]] const strided_parts<Stride, T>& parts,
                                      vec<T> a, std::index_sequence<Part...>) {
#if IKEBANA_CPU_WIDTH == 0
  a.store(to);
#else
  const auto put = [&](auto part) __attribute__((always_inline)) {
    constexpr std::size_t i = decltype(part)::value;
    T* const at = to + (Whole ? static_cast<dim_t>(i) * vec<T>::size : parts.at[i]);
    if (!Whole && parts.lanes[i] == 0) return;
    vec<T> old = Whole ? vec<T>::load(at) : vec<T>::load(at, parts.lanes[i]);
    old.v = spread_lanes_of<Stride, static_cast<int>(i)>(
        old.v, a.v, std::make_index_sequence<std::size_t(vec<T>::size)>{});
    if constexpr (Whole)
      old.store(at);
    else
      old.store(at, parts.lanes[i]);
  };
  (put(std::integral_constant<std::size_t, Part>{}), ...);
#endif
}

/// Rows of a copy whose elements are Stride apart in the source.
template <int Stride, class T>
void copy_strided(dim_t rows, dim_t lead, dim_t length, const T* from, dim_t from_step, T* to,
                  dim_t pitch) {
  constexpr dim_t w = vec<T>::size;
  constexpr auto every = std::make_index_sequence<std::size_t{Stride}>{};
  const dim_t whole = (length - 1) / w * w;
  const strided_parts<Stride, T> parts{Stride * (length - whole - 1) + 1};
  for (; rows > 0; --rows, from += from_step, to += pitch) {
    for (dim_t i = 0; i < lead; i += w) vec<T>::zero().store(to + i);
    T* const at = to + lead;
    for (dim_t i = 0; i < whole; i += w)
      load_strided<Stride, true>(from + Stride * i, parts, every).store(at + i);
    load_strided<Stride, false>(from + Stride * whole, parts, every).store(at + whole);
    for (dim_t i = lead + whole + w; i < pitch; i += w) vec<T>::zero().store(to + i);
  }
}
#if IKEBANA_CPU_WIDTH != 0
/// Every Stride-th element of the registers, from number First on.
template <int First, class T, std::size_t... Part>
IKEBANA_CPU_INLINE vec<T> take_every(const vec<T>* of, std::index_sequence<Part...>) {
  constexpr int stride = sizeof...(Part) + 1;
  vec<T> taken = of[0];
  ((taken.v = take_lanes_of<stride, static_cast<int>(Part) + 1, First>(
        taken.v, of[Part + 1].v, std::make_index_sequence<std::size_t(vec<T>::size)>{})),
   ...);
  return taken;
}
#endif
template <class T>
IKEBANA_CPU_INLINE void clear_beside(T* to, dim_t begin, dim_t end) {
  constexpr dim_t w = vec<T>::size;
  for (; begin < end; begin += w)
    vec<T>::zero().store(to + begin, end - begin < w ? end - begin : w);
}
template <int Stride, class T, std::size_t... I>
void copy_phases([[maybe_unused]] dim_t rows, [[maybe_unused]] const T* from,
                 [[maybe_unused]] dim_t from_step, [[maybe_unused]] const detail::conv_phase<T>* of,
                 [[maybe_unused]] dim_t pitch, std::index_sequence<I...>) {
#if IKEBANA_CPU_WIDTH != 0
  constexpr dim_t w = vec<T>::size;
  constexpr auto others = std::make_index_sequence<std::size_t{Stride - 1}>{};
  dim_t most = 0, reach = 0;
  for (int i = 0; i < Stride; ++i) {
    if (of[i].length > most) most = of[i].length;
    if (const dim_t end = Stride * (of[i].length - 1) + i + 1; end > reach) reach = end;
  }
  const dim_t whole = (most - 1) / w * w;
  const strided_parts<Stride, T> parts{reach - Stride * whole};
  for (dim_t at = 0; rows > 0; --rows, from += from_step, at += pitch) {
    T* const to[] = {of[I].to + at + of[I].lead...};
    for (dim_t i = 0; i < whole; i += w) {
      const vec<T> met[] = {vec<T>::load(from + Stride * i + static_cast<dim_t>(I) * w)...};
      (take_every<static_cast<int>(I)>(met, others).store(to[I] + i), ...);
    }
    const vec<T> met[] = {vec<T>::load(from + Stride * whole + parts.at[I], parts.lanes[I])...};
    (take_every<static_cast<int>(I)>(met, others).store(to[I] + whole, of[I].length - whole), ...);
    (clear_beside(of[I].to + at, 0, of[I].lead), ...);
    (clear_beside(of[I].to + at, of[I].lead + of[I].length, pitch), ...);
  }
#endif
}
/// Rows of all phases of a source: element i of number f is element i `stride` + f of `from`; zeros
/// before and after them, up to `pitch`. False, having done nothing, where there is no such way.
template <class T>
bool copy_phases(dim_t rows, dim_t stride, const T* from, dim_t from_step,
                 const detail::conv_phase<T>* of, dim_t pitch) {
  constexpr dim_t w = vec<T>::size;
  if (w == 1 || (stride != 2 && stride != 3)) return false;
  dim_t most = of[0].length, least = most;
  for (dim_t i = 1; i < stride; ++i) {
    if (of[i].length > most) most = of[i].length;
    if (of[i].length < least) least = of[i].length;
  }
  // A few elements three apart go one by one.
  if (least <= (most - 1) / w * w || (stride == 3 && most <= 4)) return false;
  if (stride == 2)
    copy_phases<2>(rows, from, from_step, of, pitch, std::make_index_sequence<2>{});
  else
    copy_phases<3>(rows, from, from_step, of, pitch, std::make_index_sequence<3>{});
  return true;
}
/// Puts rows in places Stride apart.
template <int Stride, class T>
void place_strided(dim_t rows, dim_t length, const T* from, dim_t from_step, T* to, dim_t to_step) {
  constexpr dim_t w = vec<T>::size;
  constexpr auto every = std::make_index_sequence<std::size_t{Stride}>{};
  const dim_t whole = (length - 1) / w * w;
  const strided_parts<Stride, T> parts{Stride * (length - whole - 1) + 1};
  for (; rows > 0; --rows, from += from_step, to += to_step) {
    for (dim_t i = 0; i < whole; i += w)
      store_strided<Stride, true>(to + Stride * i, parts, vec<T>::load(from + i), every);
    store_strided<Stride, false>(to + Stride * whole, parts,
                                 vec<T>::load(from + whole, length - whole), every);
  }
}

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
    copy_strided<2>(rows, lead, length, from, from_step, to, pitch);
  } else if (stride == 3 && w > 1 && length > 4) {
    copy_strided<3>(rows, lead, length, from, from_step, to, pitch);
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
  if (stride == 2 && w > 1) return place_strided<2>(rows, length, from, from_step, to, to_step);
  // Where partial loads and stores are dear, few elements go one by one.
  if (stride == 3 && w > 1 && length >= (IKEBANA_CPU_WIDTH == 64 ? w / 2 : w))
    return place_strided<3>(rows, length, from, from_step, to, to_step);
  for (; rows > 0; --rows, from += from_step, to += to_step) {
    if (stride == 1)
      copy_few(to, from, length);
    else
      for (dim_t i = 0; i < length; ++i) to[i * stride] = from[i];
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
