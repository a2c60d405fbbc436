// The weights' gradient of depthwise convolutions of 3x3, whole planes at a time
// (depthwise_planes.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
/// sums[3 k + c] += what a row brings kernel row k.
template <int Row, class T, class M>
IKEBANA_CPU_INLINE void meet_gradients(vec<T>* sums, vec<T> dy, const columns_met<T, 3>& x,
                                       const M* masks) {
  sums[3 * Row] = fma_where(dy, x.at[0], sums[3 * Row], masks[0]);
  sums[3 * Row + 1] = fma_where(dy, x.at[1], sums[3 * Row + 1], masks[1]);
  sums[3 * Row + 2] = fma_where(dy, x.at[2], sums[3 * Row + 2], masks[2]);
}
#if IKEBANA_CPU_WIDTH == 64
/// The sums of one plane, or of two channels' (`Two`) whose rows are no longer than half_strip, as
/// halves of registers. Rows that lie outside are zeros.
template <bool Apart, int Stride, bool Two = false, class T>
IKEBANA_CPU_INLINE void add_plane_gradients(const detail::depthwise_planes<T>& job, const T* x,
                                            const T* dy, vec<T>* sums) {
  using mask_type = typename column_mask<T>::type;
  // Loads that cross lines of the cache take twice the time where these come from its second level.
  constexpr dim_t strip = Two ? half_strip<T, Stride> : strip_of_planes<T, Stride>, block = 16,
                  ahead = 2048 / static_cast<dim_t>(sizeof(T));
  const dim_t width = job.width, height = job.height, out_width = job.out_width;
  constexpr auto three = std::make_index_sequence<3>{};
  for (dim_t first = 0; first < job.out_height; first += block) {
    const dim_t rows = job.out_height - first < block ? job.out_height - first : block;
    const auto* mask = static_cast<const mask_type*>(job.masks);
    for (dim_t j = 0; j < out_width; j += strip, mask += masks_of_strip<>) {
      const mask_type masks[] = {of_parts<Two, T>(mask[0]),
                                 of_parts<Two, T>(mask[1]),
                                 of_parts<Two, T>(mask[2]),
                                 mask[3],
                                 mask[4],
                                 mask[5]};
      const T* const none = job.zeros + Stride * j - job.left;
      dim_t i = Stride * first - job.top;
      const T *from = x + i * width + Stride * j - job.left, *of = dy + first * out_width + j;
      const auto next_row = [&]() __attribute__((always_inline)) {
        const bool is_inside = i >= 0 && i < height;
        const T* const at = is_inside ? from : none;
        ++i;
        from += width;
        if constexpr (Two)
          return load_two_columns<Stride>(at, is_inside ? at + height * width : at, three);
        else
          return load_columns<Apart, Stride>(at, masks, three);
      };
      // A row of dy and the three that it meets, of which it reads the last.
      const auto step = [&](const columns_met<T, 3>& a, columns_met<T, 3>& b, columns_met<T, 3>& c)
          __attribute__((always_inline)) {
        const vec<T> now =
            opaque(Two ? load_two(of, of + job.out_height * out_width) : load_where(of, masks[3]));
        if constexpr (!Two) {
          __builtin_prefetch(of + ahead);
          __builtin_prefetch(from + ahead);
        }
        meet_gradients<0>(sums, now, a, masks);
        if constexpr (Stride == 2) b = next_row();
        meet_gradients<1>(sums, now, b, masks);
        c = next_row();
        meet_gradients<2>(sums, now, c, masks);
        of += out_width;
      };
      columns_met<T, 3> a = next_row(), b = Stride == 1 ? next_row() : a, c;
      dim_t t = rows;
      if constexpr (Stride == 1) {
        for (; t >= 3; t -= 3) {
          step(a, b, c);
          step(b, c, a);
          step(c, a, b);
        }
        if (t > 0) step(a, b, c);
        if (t > 1) step(b, c, a);
      } else {
        for (; t >= 2; t -= 2) {
          step(a, b, c);
          step(c, b, a);
        }
        if (t > 0) step(a, b, c);
      }
    }
  }
}
#else
/// f(k, what kernel column k brings from one row), each found when the one before has been met: 16
/// registers hold no more beside the sums.
template <int Stride, class T, class M, class F>
IKEBANA_CPU_INLINE void visit_columns(const T* p, const M* masks, F f) {
  using zero = std::integral_constant<std::size_t, 0>;
  using one = std::integral_constant<std::size_t, 1>;
  using two = std::integral_constant<std::size_t, 2>;
  const auto load = [=](dim_t at, int mask) __attribute__((always_inline)) {
    return opaque(load_where(p + at, masks[mask]));
  };
  if constexpr (Stride == 1) {
    f(zero{}, load(0, 0));
    f(one{}, load(1, 1));
    f(two{}, load(2, 2));
  } else {
    constexpr dim_t w = vec<T>::size;
    const vec<T> a = load(0, 4), b = load(w, 5);
    f(zero{}, evens(a, b));
    f(one{}, odds(a, b));
    f(two{}, evens(load(2, 0), load(2 + w, 1)));
  }
}
/// The sums of one plane.
template <bool Apart, int Stride, class T>
IKEBANA_CPU_INLINE void add_plane_gradients(const detail::depthwise_planes<T>& job, const T* x,
                                            const T* dy, vec<T>* sums) {
  using mask_type = typename column_mask<T>::type;
  constexpr dim_t strip = strip_of_planes<T, Stride>, block = Stride == 1 ? 32 : 16,
                  ahead = 2048 / static_cast<dim_t>(sizeof(T));
  const dim_t width = job.width, height = job.height, out_width = job.out_width,
              out_height = job.out_height, top = job.top;
  // Kernel row 0 meets row Stride t - top with row t of dy; what sees row t last does so two rows
  // of the kernel later. Rows t of [inner, outer) meet only what there is.
  constexpr dim_t behind = Stride == 1 ? 2 : 1;
  const auto most = [](dim_t a, dim_t b) { return a > b ? a : b; };
  const dim_t inner = most(behind, (top + Stride - 1) / Stride), fits = (height + top) / Stride,
              outer = out_height < fits ? out_height : fits;
  for (dim_t first = 0; first < out_height + behind; first += block) {
    const dim_t end = first + block < out_height + behind ? first + block : out_height + behind;
    const auto* mask = static_cast<const mask_type*>(job.masks);
    for (dim_t j = 0; j < out_width; j += strip, mask += masks_of_strip<>) {
      const mask_type masks[] = {mask[0], mask[1], mask[2], mask[3], mask[4], mask[5]};
      const T *const given = dy + j, *const image = x + Stride * j - job.left;
      const auto load_dy = [&](const T* at) __attribute__((always_inline)) {
        const vec<T> row = opaque(load_where(at, masks[3]));
        return Stride == 2 ? ordered(row) : row;
      };
      const auto see = [&](const T* at) __attribute__((always_inline)) {
        return load_columns<Apart, Stride>(at, masks, std::make_index_sequence<3>{});
      };
      for (dim_t t = first; t < end; ++t) {
        const dim_t i = Stride * t - top;
        const T *from = image + i * width, *of = given + t * out_width;
        if (t >= inner && t < outer) {
          const dim_t stop = outer < end ? outer : end;
          vec<T> before = load_dy(of - out_width),
                 earlier = Stride == 1 ? load_dy(of - 2 * out_width) : before;
          for (; t < stop; ++t, from += Stride * width, of += out_width) {
            const vec<T> now = load_dy(of);
            if constexpr (Stride == 1) {
              __builtin_prefetch(of + ahead);
              __builtin_prefetch(from + ahead);
              visit_columns<1>(
                  from, masks, [&](auto k, vec<T> seen) __attribute__((always_inline)) {
                    sums[k] = fma(now, seen, sums[k]);
                    sums[3 + k] = fma(before, seen, sums[3 + k]);
                    sums[6 + k] = fma(earlier, seen, sums[6 + k]);
                  });
            } else {
              visit_columns<2>(
                  from, masks, [&](auto k, vec<T> seen) __attribute__((always_inline)) {
                    sums[k] = fma(now, seen, sums[k]);
                    sums[6 + k] = fma(before, seen, sums[6 + k]);
                  });
              visit_columns<2>(
                  from + width, masks, [&](auto k, vec<T> seen) __attribute__((always_inline)) {
                    sums[3 + k] = fma(now, seen, sums[3 + k]);
                  });
            }
            earlier = before;
            before = now;
          }
          --t;
          continue;
        }
        // What meets nothing may not be finite.
        const auto meet = [&](auto row, dim_t at, const columns_met<T, 3>& seen)
            __attribute__((always_inline)) {
          if (at >= 0 && at < out_height)
            meet_gradients<decltype(row)::value>(sums, load_dy(given + at * out_width), seen,
                                                 masks);
        };
        using std::integral_constant;
        if (i >= 0 && i < height) {
          const auto seen = see(from);
          meet(integral_constant<int, 0>{}, t, seen);
          if constexpr (Stride == 1) meet(integral_constant<int, 1>{}, t - 1, seen);
          meet(integral_constant<int, 2>{}, t - behind, seen);
        }
        if (Stride == 2 && i + 1 >= 0 && i + 1 < height)
          meet(integral_constant<int, 1>{}, t, see(from + width));
      }
    }
  }
}
#endif
/// to[i] = (adds ? to[i] : 0) + the sum of register i's lanes.
template <std::size_t First = 0, class T, std::size_t N>
IKEBANA_CPU_INLINE void add_each(const vec<T> (&sums)[N], T* to, bool adds) {
  constexpr std::size_t w = static_cast<std::size_t>(vec<T>::size);
  constexpr auto lanes = static_cast<dim_t>(First + w < N ? w : N - First);
  vec<T> found = merge_sums<First, w>(sums);
  if (adds) found = vec<T>::load(to + First, lanes) + found;
  found.store(to + First, lanes);
  if constexpr (First + w < N) add_each<First + w>(sums, to, adds);
}
#if IKEBANA_CPU_WIDTH == 64
/// As merge_sums, of registers each of whose halves is a sum.
template <std::size_t First, std::size_t Span, class T, std::size_t N>
IKEBANA_CPU_INLINE vec<T> merge_halves(const vec<T> (&sums)[N]) {
  constexpr std::size_t half = Span / 2, w = static_cast<std::size_t>(vec<T>::size);
  if constexpr (Span == 2) {
    return sums[First / 2];
  } else {
    const vec<T> x = merge_halves<First, half>(sums);
    if constexpr (First + half < 2 * N)
      return {merge_groups<w / half>(x.v, merge_halves<First + half, half>(sums).v,
                                     std::make_index_sequence<w>{})};
    else
      return {merge_groups<w / half>(x.v, x.v, std::make_index_sequence<w>{})};
  }
}
/// As add_each, of two channels.
template <class T, std::size_t N, std::size_t... L>
IKEBANA_CPU_INLINE void add_each_of_two(const vec<T> (&sums)[N], T* to, bool adds,
                                        std::index_sequence<L...>) {
  constexpr std::size_t w = sizeof...(L);
  constexpr auto rest = static_cast<dim_t>(2 * N - w);
  // One channel's after the other's.
  constexpr auto lane_of = [](std::size_t i) {
    return static_cast<int>(i < 2 * N ? i % N * 2 + i / N : 0);
  };
  const vec<T> a = merge_halves<0, w>(sums), b = merge_halves<w, w>(sums);
  vec<T> first{__builtin_shufflevector(a.v, b.v, lane_of(L)...)},
      last{__builtin_shufflevector(a.v, b.v, lane_of(w + L)...)};
  if (adds) {
    first = vec<T>::load(to) + first;
    last = vec<T>::load(to + w, rest) + last;
  }
  first.store(to);
  last.store(to + w, rest);
}
#endif
/// The gradients of the weights of some channels: planes of an image are `count` apart, of which
/// there are `batch`.
template <class T, int Stride>
[[gnu::noinline]] void gradients_of_planes(const detail::depthwise_planes<T>& job) {
  const dim_t plane = job.height * job.width, out_plane = job.out_height * job.out_width;
  dim_t c = 0;
#if IKEBANA_CPU_WIDTH == 64
  if constexpr (sizeof(T) == 4)  // halves of double would be as short as what goes as one row
    if (!job.apart && job.out_width <= half_strip<T, Stride>)
      for (; c + 2 <= job.count; c += 2) {
        const vec<T> none = vec<T>::zero();
        vec<T> sums[] = {none, none, none, none, none, none, none, none, none};
        for (dim_t image = 0; image < job.batch; ++image) {
          const dim_t at = image * job.channels + c;
          add_plane_gradients<false, Stride, true>(job, job.x + at * plane, job.dy + at * out_plane,
                                                   sums);
        }
        add_each_of_two(sums, job.out + c * 9, job.accumulate, lane_sequence<T>{});
      }
#endif
  for (; c < job.count; ++c) {
    const vec<T> none = vec<T>::zero();
    vec<T> sums[] = {none, none, none, none, none, none, none, none, none};
    for (dim_t image = 0; image < job.batch; ++image) {
      const dim_t at = image * job.channels + c;
      const T *const x = job.x + at * plane, *const dy = job.dy + at * out_plane;
      if (IKEBANA_CPU_WIDTH == 32 || job.apart)
        add_plane_gradients<true, Stride>(job, x, dy, sums);
      else
        add_plane_gradients<false, Stride>(job, x, dy, sums);
    }
    add_each(sums, job.out + c * 9, job.accumulate);
  }
}
/// For each register of a plane's positions, one after the other whatever their rows, and each
/// weight of the kernel: which of them meet the source, of which each position is the middle.
template <class T>
void find_flat_masks(dim_t height, dim_t width, void* to) {
  constexpr dim_t w = vec<T>::size;
  using bits = typename number<T>::bits;
  auto* mask = static_cast<typename column_mask<T>::type*>(to);
  dim_t y = 0, x = 0;
  while (y < height) {
    bits rows[3][w] = {}, columns[3][w] = {};
    for (dim_t l = 0; l < w && y < height; ++l) {
      for (dim_t k = 0; k < 3; ++k) {
        rows[k][l] = -bits{y + k > 0 && y + k <= height};
        columns[k][l] = -bits{x + k > 0 && x + k <= width};
      }
      if (++x == width) ++y, x = 0;
    }
    for (const auto& row : rows)
      for (const auto& column : columns)
        *mask++ = mask_of(bits_of<T>::load(row) & bits_of<T>::load(column));
  }
}
/// The gradients of as many channels as C, whose planes are as large as those of the source.
template <bool Apart, class T, std::size_t... C, std::size_t... I>
IKEBANA_CPU_INLINE void flat_gradients(const detail::depthwise_planes<T>& job, dim_t channel,
                                       std::index_sequence<C...>, std::index_sequence<I...>) {
  constexpr dim_t w = vec<T>::size;
  const dim_t width = job.width, plane = job.height * width;
  vec<T> sums[] = {(static_cast<void>(I), vec<T>::zero())...};
  for (dim_t image = 0; image < job.batch; ++image) {
    const dim_t at = (image * job.channels + channel) * plane;
    const T *dy = job.dy + at, *x = job.x + at - width - 1;
    const auto* mask = static_cast<const typename column_mask<T>::type*>(job.masks);
    for (dim_t left = plane; left > 0; left -= w, dy += w, x += w, mask += 9) {
      const vec<T> given[] = {opaque(load_some(dy + static_cast<dim_t>(C) * plane, left))...};
      const auto meet = [&](auto sum) __attribute__((always_inline)) {
        constexpr std::size_t i = decltype(sum)::value, c = i % sizeof...(C),
                              tap = i / sizeof...(C);
        const T* const from = x + static_cast<dim_t>(c) * plane +
                              static_cast<dim_t>(tap / 3) * width + static_cast<dim_t>(tap % 3);
        vec<T>& s = sums[c * 9 + tap];
        s = fma_where(given[c], load_beside<Apart>(from, mask[tap]), s, mask[tap]);
      };
      (meet(std::integral_constant<std::size_t, I>{}), ...);
    }
  }
  add_each(sums, job.out + channel * 9, job.accumulate);
}
template <class T>
[[gnu::noinline]] void gradients_of_flat_planes(const detail::depthwise_planes<T>& job) {
  constexpr auto one = std::make_index_sequence<9>{};
  dim_t c = 0;
#if IKEBANA_CPU_WIDTH == 64
  if (!job.apart)
    for (; c + 2 <= job.count; c += 2)
      flat_gradients<false>(job, c, std::make_index_sequence<2>{}, std::make_index_sequence<18>{});
#endif
  for (; c < job.count; ++c) flat_gradients<true>(job, c, std::make_index_sequence<1>{}, one);
}
#endif
