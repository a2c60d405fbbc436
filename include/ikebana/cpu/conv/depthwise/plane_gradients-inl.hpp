// The weights' gradient of depthwise convolutions of 3x3, whole planes at a time
// (depthwise/planes.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
/// Rows from `first` up to `end` of a strip of one plane, or of two channels' (`Two`), as halves of
/// registers. Kernel row 0 meets row Stride t - top of x with row t of dy, so that a row of x is
/// loaded once for all rows of dy that see it; what sees row t last does so with the row or two
/// below.
template <bool Apart, int Stride, bool Two, class T, class M>
IKEBANA_CPU_INLINE void add_strip_gradients(const detail::depthwise_planes<T>& job, const T* x,
                                            const T* dy, const M* masks, dim_t first, dim_t end,
                                            vec<T>* sums) {
  // Loads that cross lines of the cache take twice the time where these come from its second level.
  constexpr dim_t ahead = 2048 / static_cast<dim_t>(sizeof(T));
  constexpr bool fetches = !Two && (IKEBANA_CPU_WIDTH == 64 || Stride == 1), unrolls = !Apart;
  const dim_t width = job.width, height = job.height, out_width = job.out_width,
              out_height = job.out_height;
  dim_t i = Stride * first - job.top;
  const T *from = x + i * width, *of = dy + first * out_width;
  const auto load_dy = [&](const T* row) __attribute__((always_inline)) {
    const auto load = [&]() __attribute__((always_inline)) {
      if constexpr (Two)
        return opaque(load_two(row, row + out_height * out_width));
      else
        return load_met<Apart>(row, masks[3]);
    };
    const vec<T> found = load();
    return Stride == 2 ? ordered(found) : found;
  };
  // The next row of x.
  const auto visit = [&](auto f) __attribute__((always_inline)) {
    if constexpr (Two) {
      const auto seen =
          load_two_columns<Stride>(from, from + height * width, std::make_index_sequence<3>{});
      f(std::integral_constant<std::size_t, 0>{}, seen.at[0]);
      f(std::integral_constant<std::size_t, 1>{}, seen.at[1]);
      f(std::integral_constant<std::size_t, 2>{}, seen.at[2]);
    } else {
      visit_columns<Apart, Stride>(from, masks, f);
    }
    from += width;
  };
  const auto meet = [&](std::size_t sum, vec<T> given, vec<T> seen) __attribute__((always_inline)) {
    sums[sum] = fma_where(given, seen, sums[sum], masks[sum % 3]);
  };
  const auto visit_if_inside = [&](auto f) __attribute__((always_inline)) {
    if (i >= 0 && i < height)
      visit(f);
    else
      from += width;
    ++i;
  };
  vec<T> a, b, c;
  const auto next_dy = [&]() __attribute__((always_inline)) {
    const vec<T> found = load_dy(of);
    of += out_width;
    return found;
  };
  dim_t left = (end < out_height ? end : out_height) - first;
  if constexpr (Stride == 1) {
    if (first == 0) {
      a = next_dy();
      b = next_dy();
      visit_if_inside([&](auto k, vec<T> seen)
                          __attribute__((always_inline)) { meet(k, a, seen); });
      visit_if_inside([&](auto k, vec<T> seen) __attribute__((always_inline)) {
        meet(k, b, seen);
        meet(3 + k, a, seen);
      });
      left -= 2;
    } else {
      a = load_dy(of - 2 * out_width);
      b = load_dy(of - out_width);
    }
    const auto step = [&](const vec<T>& earlier, const vec<T>& before, vec<T>& now)
        __attribute__((always_inline)) {
      if constexpr (fetches) {
        __builtin_prefetch(of + ahead);
        __builtin_prefetch(from + ahead);
      }
      now = next_dy();
      visit([&](auto k, vec<T> seen) __attribute__((always_inline)) {
        meet(k, now, seen);
        meet(3 + k, before, seen);
        meet(6 + k, earlier, seen);
      });
    };
    i += left;
    for (; unrolls && left >= 3; left -= 3) {
      step(a, b, c);
      step(b, c, a);
      step(c, a, b);
    }
    for (; left > 0; --left) {
      step(a, b, c);
      a = b;
      b = c;
    }
    if (end < out_height) return;
    visit_if_inside([&](auto k, vec<T> seen) __attribute__((always_inline)) {
      meet(3 + k, b, seen);
      meet(6 + k, a, seen);
    });
    visit_if_inside([&](auto k, vec<T> seen)
                        __attribute__((always_inline)) { meet(6 + k, b, seen); });
  } else {
    const auto see_odd = [&](auto k, vec<T> seen) __attribute__((always_inline)) {
      meet(3 + k, b, seen);
    };
    if (first == 0) {
      b = next_dy();
      visit_if_inside([&](auto k, vec<T> seen)
                          __attribute__((always_inline)) { meet(k, b, seen); });
      visit_if_inside(see_odd);
      --left;
    } else {
      b = load_dy(of - out_width);
    }
    const auto step = [&](const vec<T>& before, vec<T>& now) __attribute__((always_inline)) {
      if constexpr (fetches) {
        __builtin_prefetch(of + ahead);
        __builtin_prefetch(from + ahead);
      }
      now = next_dy();
      visit([&](auto k, vec<T> seen) __attribute__((always_inline)) {
        meet(k, now, seen);
        meet(6 + k, before, seen);
      });
      visit([&](auto k, vec<T> seen) __attribute__((always_inline)) { meet(3 + k, now, seen); });
    };
    i += 2 * left;
    for (; unrolls && left >= 2; left -= 2) {
      step(b, c);
      step(c, b);
    }
    for (; left > 0; --left) {
      step(b, c);
      b = c;
    }
    if (end < out_height) return;
    visit_if_inside([&](auto k, vec<T> seen)
                        __attribute__((always_inline)) { meet(6 + k, b, seen); });
  }
}
/// The sums of one plane, or of two channels'.
template <int Stride, bool Two, class T>
IKEBANA_CPU_INLINE void add_plane_gradients(const detail::depthwise_planes<T>& job, const T* x,
                                            const T* dy, vec<T>* sums) {
  using mask_type = typename column_mask<T>::type;
  constexpr dim_t strip = Two ? vec<T>::size / 2 : strip_of_planes<T, Stride>,
                  block = IKEBANA_CPU_WIDTH == 32 && Stride == 1 ? 32 : 16;
  const dim_t out_width = job.out_width, out_height = job.out_height;
  for (dim_t first = 0; first < out_height; first += block) {
    const auto* mask = static_cast<const mask_type*>(job.masks);
    for (dim_t j = 0; j < out_width; j += strip, mask += masks_of_strip<>) {
      const mask_type masks[] = {of_parts<Two, T>(mask[0]),
                                 of_parts<Two, T>(mask[1]),
                                 of_parts<Two, T>(mask[2]),
                                 of_parts<Two, T>(mask[3]),
                                 mask[4],
                                 mask[5]};
      const dim_t at = Stride * j - job.left;
      const auto add = [&](auto apart) __attribute__((always_inline)) {
        add_strip_gradients<decltype(apart)::value, Stride, Two>(job, x + at, dy + j, masks, first,
                                                                 first + block, sums);
      };
      if (IKEBANA_CPU_WIDTH == 64 || at < 0 || out_width - j < vec<T>::size ||
          at + Stride * vec<T>::size + 2 > job.width)
        add(std::true_type{});
      else
        add(std::bool_constant<IKEBANA_CPU_WIDTH == 64>{});
    }
  }
}
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
/// The gradients of the weights of channels from `c` up to `end`, one or two at a time: planes of
/// an image are `count` apart, of which there are `batch`.
template <int Stride, bool Two, class T>
[[gnu::noinline]] void gradients_of_some(const detail::depthwise_planes<T>& job, dim_t c,
                                         dim_t end) {
  const dim_t plane = job.height * job.width, out_plane = job.out_height * job.out_width;
  for (; c < end; c += 1 + Two) {
    const vec<T> none = vec<T>::zero();
    vec<T> sums[] = {none, none, none, none, none, none, none, none, none};
    for (dim_t image = 0; image < job.batch; ++image) {
      const dim_t at = image * job.channels + c;
      add_plane_gradients<Stride, Two>(job, job.x + at * plane, job.dy + at * out_plane, sums);
    }
#if IKEBANA_CPU_WIDTH == 64
    if constexpr (Two) {
      add_each_of_two(sums, job.out + c * 9, job.accumulate, lane_sequence<T>{});
      continue;
    }
#endif
    add_each(sums, job.out + c * 9, job.accumulate);
  }
}
template <class T, int Stride>
[[gnu::noinline]] void gradients_of_planes(const detail::depthwise_planes<T>& job) {
#if IKEBANA_CPU_WIDTH == 64
  if constexpr (sizeof(T) == 4)  // halves of double would be as short as what goes as one row
    if (takes_two_planes<T, Stride>(job.out_width, job.width, job.left))
      return each_pair_of_planes(job.count, std::min(job.plane, job.out_plane),
                                 [&](dim_t begin, dim_t end, auto two) {
                                   gradients_of_some<Stride, decltype(two)::value>(job, begin, end);
                                 });
#endif
  gradients_of_some<Stride, false>(job, 0, job.count);
}
#endif
