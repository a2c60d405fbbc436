// Windows of two by two that share nothing, none of which passes the end: pairs of columns are
// joined in registers. Needs: joining-inl.hpp, strided-inl.hpp.

/// What pairs of neighbours come to, the first of which are at the places `at`.
template <class By, class T>
IKEBANA_CPU_INLINE auto join_pairs(even_odd<T> pairs, bits_of<T> at) {
  if constexpr (has_places<By>) {
    running_maximum<T> m{pairs.even, at};
    m.meet(pairs.odd, at + typename number<T>::bits{1});
    return m;
  } else {
    return By::join(pairs.even, pairs.odd);
  }
}

/// Whether rows of results are narrower than a register, and nothing is left out.
template <class T>
IKEBANA_CPU_INLINE bool is_narrow(const pool_geometry& g) {
  return g.out[2] > 0 && g.out[2] < vec<T>::size && 2 * g.out[1] == g.in[1] &&
         2 * g.out[2] == g.in[2] &&
         g.input_plane() / 2 * static_cast<dim_t>(sizeof(T)) <= detail::pool_costs::narrow_bytes;
}
/// All of them by planes: pairs of columns are joined in registers that pass over the ends of rows,
/// then pairs of rows.
template <class By, class T>
IKEBANA_CPU_INLINE void halve_narrow_planes(const pool_geometry& g, const T* x, T factor, T* y,
                                            std::int32_t* indices) {
  using joined = typename By::template joined<T>;
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size,
                  near = detail::pool_costs::narrow_bytes / static_cast<dim_t>(sizeof(T));
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
      store_joined(join_pairs<By>(both, twice + static_cast<B>(2 * i)), values, places, i);
    }
    for (dim_t p = 0; p < now; ++p, x += plane)
      for (dim_t r = 0; r < rows; ++r, y += count) {
        joined upper[1], lower[1];
        load_joined<1>(values, places, p * pairs + 2 * r * count, upper);
        load_joined<1>(values, places, p * pairs + (2 * r + 1) * count, lower);
        auto both = join_later<By>(upper[0], lower[0]);
        if constexpr (has_places<By>)
          both.where = both.where - bits_of<T>::broadcast(static_cast<B>(p * plane));
        // What is too much the next row writes over, where that is faster.
        put_some(both, factor, y, indices, 0, w * sizeof(T) == 64 ? count : end - y);
        if constexpr (has_places<By>) indices += count;
      }
  }
}

/// Sums times `factor`, or maxima with or without places, of windows of two by two that share
/// nothing.
template <pool_work Work, class T>
void halve_planes(const pool_geometry& g, const T* x, T factor, T* y, std::int32_t* indices) {
  using By = joining_of<Work>;
  using B = typename number<T>::bits;
  if (is_narrow<T>(g)) return halve_narrow_planes<By>(g, x, factor, y, indices);
  constexpr dim_t w = vec<T>::size;
  const dim_t width = g.in[2], count = g.out[2];
  const bits_of<T> twice = lane_numbers<T>() + lane_numbers<T>();
  for (dim_t plane = 0; plane < g.planes; ++plane, x += g.input_plane())
    for (dim_t z = 0; z < g.out[0]; ++z)
      for (dim_t r = 0; r < g.out[1]; ++r, y += count) {
        dim_t at = (z * g.in[1] + 2 * r) * width;
        for (dim_t c = 0; c < count; c += w, at += 2 * w) {
          const dim_t n = count - c < w ? count - c : w;
          const auto pairs = [&](dim_t from) __attribute__((always_inline)) {
            return join_pairs<By>(load_pairs(x + from, n), twice + static_cast<B>(from));
          };
          put_some(join_later<By>(pairs(at), pairs(at + width)), factor, y, indices, c, n);
        }
        if constexpr (has_places<By>) indices += count;
      }
}

/// dx of windows of two by two that share nothing: each element of it is written once. `indices`
/// are of maxima; of averages every element gets the same.
template <pool_work Work, class T>
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
          bits_of<T> where = bits_of<T>::zero();
          if constexpr (is_of_maxima(Work)) where = load_indices<T>(indices + c, n) - twice;
          const auto at = [&](dim_t place) __attribute__((always_inline)) {
            if (!is_of_maxima(Work)) return given;
            const auto here = where == bits_of<T>::broadcast(static_cast<B>(start + 2 * c + place));
            return select(lane_mask<T>{here.m}, given, zero);
          };
          store_pairs(at(0), at(1), upper + 2 * c, n);
          store_pairs(at(width), at(width + 1), lower + 2 * c, n);
        }
        if constexpr (is_of_maxima(Work)) indices += out;
        clear(upper + 2 * out, width - 2 * out);
        clear(lower + 2 * out, width - 2 * out);
      }
      clear(slice + 2 * g.out[1] * width, (height - 2 * g.out[1]) * width);
    }
    clear(slice, (g.in[0] - g.out[0]) * height * width);
  }
}
