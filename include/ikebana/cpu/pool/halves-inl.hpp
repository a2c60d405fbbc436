// Windows of two by two that share nothing, none of which passes the end: pairs of columns are
// joined in registers. Needs: joining-inl.hpp, strided-inl.hpp.

/// Sums times `factor`, or maxima and, where wanted, places, of windows of two by two that share
/// nothing, of one plane.
template <class By, class T>
IKEBANA_CPU_INLINE void halve_plane(const pool_geometry& g, const T* x, vec<T> factor, T* y,
                                    std::int32_t* indices) {
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size;
  const dim_t width = g.in[2], count = g.out[2], step = indices != nullptr ? 1 : 0;
  const bits_of<T> twice = lane_numbers<T>() + lane_numbers<T>();
  for (dim_t z = 0; z < g.out[0]; ++z)
    for (dim_t r = 0; r < g.out[1]; ++r, y += count, indices += step * count) {
      const dim_t start = (z * g.in[1] + 2 * r) * width;
      const auto columns = [&](dim_t c, dim_t n) __attribute__((always_inline)) {
        const T* const from = x + start + 2 * c;
        const auto upper = load_pairs(from, n), lower = load_pairs(from + width, n);
        if (indices == nullptr)
          return store_some(
              By::join(By::join(upper.even, upper.odd), By::join(lower.even, lower.odd)) * factor,
              y + c, n);
        const bits_of<T> at = twice + static_cast<B>(start + 2 * c);
        running_maximum<T> m{upper.even, at};
        m.meet(upper.odd, at + B{1});
        m.meet(lower.even, at + static_cast<B>(width));
        m.meet(lower.odd, at + static_cast<B>(width + 1));
        store_some(m.best, y + c, n);
        store_indices<T>(m.where, indices + c, n);
      };
      dim_t c = 0;
      for (; c + w <= count; c += w) columns(c, w);
      if (c < count) columns(c, count - c);
    }
}

/// Whether rows of results are narrower than a register, and nothing is left out.
template <class T>
IKEBANA_CPU_INLINE bool is_narrow(const pool_geometry& g) {
  return g.out[2] > 0 && g.out[2] < vec<T>::size && 2 * g.out[1] == g.in[1] &&
         2 * g.out[2] == g.in[2] &&
         g.input_plane() * static_cast<dim_t>(sizeof(T)) <= detail::pool_costs::batch_bytes;
}
/// All of them by planes: pairs of columns are joined in registers that pass over the ends of rows,
/// then pairs of rows.
template <class By, class T>
IKEBANA_CPU_INLINE void halve_narrow_planes(const pool_geometry& g, const T* x, T factor, T* y,
                                            std::int32_t* indices) {
  using joined = typename By::template joined<T>;
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size,
                  near = detail::pool_costs::batch_bytes / static_cast<dim_t>(sizeof(T));
  const dim_t plane = g.input_plane(), pairs = plane / 2, count = g.out[2],
              rows = g.out[0] * g.out[1], together = pairs > 0 ? near / pairs : 1;
  T* const values = detail::thread_scratch<T>();
  B* const places = reinterpret_cast<B*>(values + near + w);
  const bits_of<T> twice = lane_numbers<T>() + lane_numbers<T>();
  T* const end = y + g.planes * g.output_plane();
  for (dim_t first = 0; first < g.planes; first += together) {
    const dim_t now = g.planes - first < together ? g.planes - first : together;
    for (dim_t i = 0; i < now * pairs; i += w) {
      const auto both = load_pairs(x + 2 * i, now * pairs - i < w ? now * pairs - i : w);
      if constexpr (has_places<By>) {
        const bits_of<T> at = twice + static_cast<B>(2 * i);
        joined m{both.even, at};
        m.meet(both.odd, at + B{1});
        store_joined(m, values, places, i);
      } else {
        By::join(both.even, both.odd).store(values + i);
      }
    }
    for (dim_t p = 0; p < now; ++p, x += plane)
      for (dim_t r = 0; r < rows; ++r, y += count) {
        joined upper[1], lower[1];
        load_joined<1>(values, places, p * pairs + 2 * r * count, upper);
        load_joined<1>(values, places, p * pairs + (2 * r + 1) * count, lower);
        // What is too much the next row writes over.
        if constexpr (has_places<By>) {
          upper[0].meet(lower[0].best, lower[0].where);
          upper[0].where = upper[0].where - bits_of<T>::broadcast(static_cast<B>(p * plane));
          put_some(upper[0], factor, y, indices, 0, end - y);
          indices += count;
        } else {
          put_some(By::join(upper[0], lower[0]), factor, y, indices, 0, end - y);
        }
      }
  }
}

/// dx of windows of two by two that share nothing: each element of it is written once. `indices`
/// are of maxima; without them every element gets the same.
template <class T>
void halve_backward(const pool_geometry& g, const T* dy, const std::int32_t* indices, T factor,
                    T* dx) {
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size;
  const dim_t width = g.in[2], height = g.in[1], out = g.out[2];
  const bits_of<T> twice = lane_numbers<T>() + lane_numbers<T>();
  const vec<T> zero = vec<T>::zero();
  const auto clear = [](T* p, dim_t n) {
    if (n > 0) std::memset(static_cast<void*>(p), 0, static_cast<std::size_t>(n) * sizeof(T));
  };
  for (dim_t plane = 0; plane < g.planes; ++plane, dx += g.in[0] * height * width) {
    T* slice = dx;
    for (dim_t z = 0; z < g.out[0]; ++z, slice += height * width) {
      for (dim_t r = 0; r < g.out[1]; ++r, dy += out) {
        const dim_t start = (z * height + 2 * r) * width;
        T* const upper = dx + start;
        T* const lower = upper + width;
        for (dim_t c = 0; c < out; c += w) {
          const dim_t n = out - c < w ? out - c : w;
          const vec<T> given = (n == w ? vec<T>::load(dy + c) : vec<T>::load(dy + c, n)) * factor;
          if (indices == nullptr) {
            store_pairs(given, given, upper + 2 * c, n);
            store_pairs(given, given, lower + 2 * c, n);
            continue;
          }
          const bits_of<T> where = load_indices<T>(indices + c, n) - twice;
          const auto at = [&](dim_t place) __attribute__((always_inline)) {
            const auto here = where == bits_of<T>::broadcast(static_cast<B>(start + 2 * c + place));
            return select(lane_mask<T>{here.m}, given, zero);
          };
          store_pairs(at(0), at(1), upper + 2 * c, n);
          store_pairs(at(width), at(width + 1), lower + 2 * c, n);
        }
        if (indices != nullptr) indices += out;
        clear(upper + 2 * out, width - 2 * out);
        clear(lower + 2 * out, width - 2 * out);
      }
      clear(slice + 2 * g.out[1] * width, (height - 2 * g.out[1]) * width);
    }
    clear(slice, (g.in[0] - g.out[0]) * height * width);
  }
}

template <class T>
void sums_of_halves(const pool_geometry& g, const T* x, T factor, T* y) {
  if (is_narrow<T>(g)) return halve_narrow_planes<by_sum>(g, x, factor, y, nullptr);
  const vec<T> by = vec<T>::broadcast(factor);
  for (dim_t n = 0; n < g.planes; ++n, x += g.input_plane(), y += g.output_plane())
    halve_plane<by_sum>(g, x, by, y, nullptr);
}
/// Maxima, and places if `indices` is not null.
template <class T>
void maxima_of_halves(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  if (is_narrow<T>(g)) {
    if (indices == nullptr) return halve_narrow_planes<by_maximum>(g, x, T(1), y, indices);
    return halve_narrow_planes<by_place>(g, x, T(1), y, indices);
  }
  const vec<T> by = vec<T>::broadcast(T(1));
  for (dim_t n = 0; n < g.planes; ++n, x += g.input_plane(), y += g.output_plane()) {
    halve_plane<by_maximum>(g, x, by, y, indices);
    if (indices != nullptr) indices += g.output_plane();
  }
}
