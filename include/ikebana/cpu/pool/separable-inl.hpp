// Windows of any kind, row by row: the rows that a row of windows meets are joined into one line
// first, then the columns of that line. Backward, the rows of dy that a row of dx gets something
// from are added up first.
// Needs: joining-inl.hpp, strided-inl.hpp.

/// What `rows` rows of n in each of `slabs` come to, the first of which is at place `first`, from
/// element `to` of a line on. Up to a vector more is written, with nothing.
template <class By, class T, class Place>
IKEBANA_CPU_INLINE void join_rows(const T* from, dim_t slabs, dim_t slab_step, dim_t rows,
                                  dim_t row_step, dim_t n, dim_t first, T* line, Place* places,
                                  dim_t to) {
  constexpr dim_t w = vec<T>::size;
  const auto columns = [&](dim_t j, auto load, auto... v) __attribute__((always_inline)) {
    typename By::template joined<T> total[] = {(static_cast<void>(v), By::template none<T>())...};
    if constexpr (has_places<By>) ((total[v].where = bits_of<T>::zero()), ...);
    for (dim_t z = 0; z < slabs; ++z) {
      const T* row = from + z * slab_step + j;
      dim_t at = z * slab_step;
      for (dim_t r = rows; r > 0; --r, row += row_step, at += row_step) {
        if constexpr (has_places<By>)
          (total[v].meet(load(row + v * w), bits_of<T>::broadcast(static_cast<Place>(at))), ...);
        else
          ((total[v] = By::join(total[v], load(row + v * w))), ...);
      }
    }
    if constexpr (has_places<By>)
      ((total[v].where =
            total[v].where + (lane_numbers<T>() + static_cast<Place>(first + j + v * w))),
       ...);
    if (n - j < w) total[0] = By::first_lanes(total[0], n - j);
    (store_joined(total[v], line, places, to + j + v * w), ...);
  };
  const auto whole = [](const T* p) __attribute__((always_inline)) { return vec<T>::load(p); };
  dim_t j = 0;
  for (; j + 4 * w <= n; j += 4 * w) columns(j, whole, 0, 1, 2, 3);
  for (; j + w <= n; j += w) columns(j, whole, 0);
  if (const dim_t left = n - j; left > 0)
    columns(
        j, [left](const T* p) __attribute__((always_inline)) { return vec<T>::load(p, left); }, 0);
}

/// Whether neighbouring windows of such a stride are parted in registers.
template <class T>
IKEBANA_CPU_INLINE bool has_phases(const detail::any_windows& g) {
  return g.stride == 1 ||
         (vec<T>::size > 1 && (g.stride == 2 || g.stride == 4) && g.dilation[2] == 1);
}

/// What each window of a batch of `rows` padded rows comes to, times `factor`.
template <class By, class T>
IKEBANA_CPU_INLINE void join_columns(const detail::any_windows& g, const detail::window_lines<T>& t,
                                     dim_t rows, T factor, T* to, std::int32_t* indices) {
  constexpr dim_t w = vec<T>::size;
  using joined = typename By::template joined<T>;
  const dim_t kernel = g.kernel, dilation = g.dilation[2];
  const T* const line = t.rows;
  const auto* const places = t.places;
  if (has_phases<T>(g)) {
    const dim_t count = (rows - 1) * t.window_pitch + g.out[2];
    return with_phases(
        g.stride, [&](auto stride) __attribute__((always_inline)) {
          constexpr int phases = stride;
          for (dim_t o = 0; o < count; o += w) {
            dim_t at = phases * o;
            joined total = By::template none<T>();
            for (dim_t k = 0; k < kernel; k += phases, at += phases * dilation) {
              joined x[phases];
              load_joined<phases>(line, places, at, x);
#pragma GCC unroll 4
              for (int i = 0; i < phases; ++i)
                if (k + i < kernel) total = By::join(total, x[i]);
            }
            put_some(total, factor, to, indices, o, count - o);
          }
        });
  }
  const detail::pool_span* const spans = t.spans[2];
  for (dim_t i = 0; i < rows; ++i)
    for (dim_t o = 0; o < g.out[2]; ++o) {
      dim_t at = i * t.row_pitch + (spans != nullptr ? spans[o].begin : o * g.stride);
      dim_t n = spans != nullptr ? spans[o].end - spans[o].begin : kernel;
      const dim_t window = i * t.window_pitch + o;
      T total = line[at];
      if constexpr (has_places<By>) {
        auto where = places[at];
        for (; n > 1; --n) {
          at += dilation;
          By::join(total, where, line[at], places[at]);
        }
        indices[window] = static_cast<std::int32_t>(where);
      } else {
        if (w > 1 && dilation == 1 && n >= w) {
          vec<T> some = vec<T>::load(line + at);
          for (; n >= 2 * w; n -= w) some = By::join(some, vec<T>::load(line + (at += w)));
          total = By::of_lanes(some);
          at += w - 1;
          n -= w - 1;
        }
        for (; n > 1; --n) total = By::join(total, line[at += dilation]);
      }
      to[window] = total * factor;
    }
}

/// y of the windows, and, if maxima with places are wanted, these.
template <pool_work Work, class T>
void join_windows(const detail::any_windows& g, const detail::window_lines<T>& t, const T* x, T* y,
                  std::int32_t* indices) {
  using By = joining_of<Work>;
  constexpr dim_t w = vec<T>::size;
  const dim_t width = g.in[2], slab_step = g.in[1] * width, count = g.out[2];
  const bool is_direct = t.window_pitch == count && t.factors[2] == nullptr;
  const auto none = By::template none<T>();
  for (dim_t j = 0; j < t.batch * t.row_pitch + w; j += w) store_joined(none, t.rows, t.places, j);
  for (dim_t plane = 0; plane < g.planes; ++plane, x += g.in[0] * slab_step)
    for (dim_t oz = 0; oz < g.out[0]; ++oz) {
      const detail::pool_span z = t.spans[0][oz];
      for (dim_t first = 0, rows; first < g.out[1]; first += rows) {
        // All rows of a batch are written before the first is read, which so waits for none.
        rows = g.out[1] - first < t.batch ? g.out[1] - first : t.batch;
        for (dim_t i = 0; i < rows; ++i) {
          const detail::pool_span r = t.spans[1][first + i];
          const dim_t place = z.begin * slab_step + r.begin * width;
          join_rows<By>(x + place, g.met(z, 0), slab_step * g.dilation[0], g.met(r, 1),
                        width * g.dilation[1], width, place, t.rows, t.places,
                        i * t.row_pitch + g.padding);
        }
        const bool factors = t.factors[2] != nullptr;
        join_columns<By>(g, t, rows, factors ? T(1) : t.factor, is_direct ? y : t.windows,
                         is_direct ? indices : t.indices);
        for (dim_t i = 0; i < rows && !is_direct; ++i) {
          const T by = t.factor_of(oz, first + i);
          for (dim_t j = 0; j < count; j += w) {
            vec<T> v = vec<T>::load(t.windows + i * t.window_pitch + j);
            if (factors) v = v * vec<T>::load(t.factors[2] + j) * by;
            store_some(v, y + i * count + j, count - j);
          }
          if (has_places<By>)
            std::copy_n(t.indices + i * t.window_pitch, count, indices + i * count);
        }
        y += rows * count;
        if (has_places<By>) indices += rows * count;
      }
    }
}

/// What each element of a batch of `rows` padded rows gets from the windows that it is in.
template <class T>
IKEBANA_CPU_INLINE void spread_columns(const detail::any_windows& g,
                                       const detail::window_lines<T>& t, dim_t rows) {
  constexpr dim_t w = vec<T>::size;
  const dim_t kernel = g.kernel;
  const T* const line = t.windows;
  if (has_phases<T>(g))
    return with_phases(
        g.stride, [&](auto stride) __attribute__((always_inline)) {
          constexpr int phases = stride;
          // Windows that all phases are in, and the phases that are in one more.
          const dim_t shift = (kernel - 1) / phases, one_more = kernel - shift * phases;
          for (dim_t j = 0; j < rows * t.window_pitch; j += w) {
            vec<T> some = vec<T>::zero(), x[phases];
            for (dim_t i = 0; i < shift; ++i) some = some + vec<T>::load(line + j - i);
            const vec<T> all = some + vec<T>::load(line + j - shift);
#pragma GCC unroll 4
            for (int i = 0; i < phases; ++i) x[i] = i < one_more ? all : some;
            store_phases<phases>(static_cast<const vec<T>*>(x), t.rows + phases * j);
          }
        });
  const detail::pool_span* const spans = t.spans[2];
  std::memset(static_cast<void*>(t.rows), 0,
              static_cast<std::size_t>(rows * t.row_pitch) * sizeof(T));
  for (dim_t r = 0; r < rows; ++r)
    for (dim_t o = 0; o < g.out[2]; ++o) {
      const T share = line[r * t.window_pitch + o];
      T* p = t.rows + r * t.row_pitch + (spans != nullptr ? spans[o].begin : o * g.stride);
      dim_t n = spans != nullptr ? spans[o].end - spans[o].begin : kernel;
      if (w > 1)
        for (; n >= w; n -= w, p += w) (vec<T>::load(p) + share).store(p);
      for (; n > 0; --n) *p++ += share;
    }
}

/// dx of sums: every element of it is written once.
template <class T>
void spread_windows(const detail::any_windows& g, const detail::window_lines<T>& t, const T* dy,
                    T* dx) {
  constexpr dim_t w = vec<T>::size;
  const dim_t width = g.in[2], count = g.out[2],
              before = g.stride != 0 ? (g.kernel - 1) / g.stride : 0;
  for (dim_t j = -before; j < t.batch * t.window_pitch + w; j += w)
    vec<T>::zero().store(t.windows + j);
  for (dim_t plane = 0; plane < g.planes; ++plane, dy += g.out[0] * g.out[1] * count)
    for (dim_t z = 0; z < g.in[0]; ++z) {
      const auto slabs = t.ranges[0][z];
      for (dim_t r = 0; r < g.in[1];) {
        // A batch of rows, of which those that are in the same windows are alike.
        dim_t rows = 0, alike[detail::pool_costs::most_rows];
        while (r < g.in[1] && rows < t.batch) {
          const auto of = t.ranges[1][r];
          T* const line = t.windows + rows * t.window_pitch;
          for (dim_t j = 0; j < count; j += w) {
            const dim_t left = count - j < w ? count - j : w;
            vec<T> total = vec<T>::zero();
            for (dim_t oz = slabs.first; oz < slabs.end; ++oz) {
              const T* from = dy + (oz * g.out[1] + of.first) * count + j;
              for (dim_t oy = of.first; oy < of.end; ++oy, from += count)
                total =
                    fma(vec<T>::load(from, left), vec<T>::broadcast(t.factor_of(oz, oy)), total);
            }
            if (t.factors[2] != nullptr) total = total * vec<T>::load(t.factors[2] + j);
            total.store(line + j);
          }
          const dim_t begin = r++;
          while (r < g.in[1] && t.ranges[1][r].first == of.first && t.ranges[1][r].end == of.end)
            ++r;
          alike[rows++] = r - begin;
        }
        spread_columns(g, t, rows);
        for (dim_t i = 0; i < rows; ++i)
          for (; alike[i] > 0; --alike[i], dx += width)
            for (dim_t j = 0; j < width; j += w)
              store_some(vec<T>::load(t.rows + i * t.row_pitch + g.padding + j), dx + j, width - j);
      }
    }
}
