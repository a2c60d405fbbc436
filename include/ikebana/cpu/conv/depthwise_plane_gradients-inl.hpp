// The weights' gradient of depthwise convolutions of 3x3, whole planes at a time
// (depthwise_planes.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
/// sums[3 k + c] += what a row brings kernel row k.
template <int Row, class T, class M>
IKEBANA_CPU_INLINE void meet_gradients(vec<T>* sums, vec<T> dy, const three_columns<T>& x,
                                       const M* masks) {
  sums[3 * Row] = fma_where(dy, x.at[0], sums[3 * Row], masks[0]);
  sums[3 * Row + 1] = fma_where(dy, x.at[1], sums[3 * Row + 1], masks[1]);
  sums[3 * Row + 2] = fma_where(dy, x.at[2], sums[3 * Row + 2], masks[2]);
}
#if IKEBANA_CPU_WIDTH == 64
/// The sums of one plane, whose rows that lie outside are zeros.
template <bool Apart, int Stride, class T>
IKEBANA_CPU_INLINE void add_plane_gradients(const detail::depthwise_planes<T>& job, const T* x,
                                            const T* dy, vec<T>* sums) {
  using mask_type = typename column_mask<T>::type;
  // Loads that cross lines of the cache take twice the time where these come from its second level.
  constexpr dim_t strip = strip_of_planes<T, Stride>, block = 16,
                  ahead = 2048 / static_cast<dim_t>(sizeof(T));
  const dim_t width = job.width, height = job.height, out_width = job.out_width;
  for (dim_t first = 0; first < job.out_height; first += block) {
    const dim_t rows = job.out_height - first < block ? job.out_height - first : block;
    const auto* mask = static_cast<const mask_type*>(job.masks);
    for (dim_t j = 0; j < out_width; j += strip, mask += masks_of_strip) {
      const mask_type masks[] = {mask[0], mask[1], mask[2], mask[3], mask[4], mask[5]};
      const T* const none = job.zeros + Stride * j - job.left;
      dim_t i = Stride * first - job.top;
      const T *from = x + i * width + Stride * j - job.left, *of = dy + first * out_width + j;
      const auto next_row = [&]() __attribute__((always_inline)) {
        const T* const at = i >= 0 && i < height ? from : none;
        ++i;
        from += width;
        return load_columns<Apart, Stride>(at, masks, lane_sequence<T>{});
      };
      // A row of dy and the three that it meets, of which it reads the last.
      const auto step = [&](const three_columns<T>& a, three_columns<T>& b, three_columns<T>& c)
          __attribute__((always_inline)) {
        const vec<T> now = in_register(load_where(of, masks[3]));
        __builtin_prefetch(of + ahead);
        __builtin_prefetch(from + ahead);
        meet_gradients<0>(sums, now, a, masks);
        if constexpr (Stride == 2) b = next_row();
        meet_gradients<1>(sums, now, b, masks);
        c = next_row();
        meet_gradients<2>(sums, now, c, masks);
        of += out_width;
      };
      three_columns<T> a = next_row(), b = Stride == 1 ? next_row() : a, c;
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
/// The sums of one plane.
template <bool Apart, int Stride, class T>
IKEBANA_CPU_INLINE void add_plane_gradients(const detail::depthwise_planes<T>& job, const T* x,
                                            const T* dy, vec<T>* sums) {
  using mask_type = typename column_mask<T>::type;
  constexpr dim_t strip = strip_of_planes<T, Stride>, block = 16;
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
    for (dim_t j = 0; j < out_width; j += strip, mask += masks_of_strip) {
      const mask_type masks[] = {mask[0], mask[1], mask[2], mask[3], mask[4], mask[5]};
      const T *const given = dy + j, *const image = x + Stride * j - job.left;
      const auto load_dy = [&](const T* at) __attribute__((always_inline)) {
        const vec<T> row = in_register(load_where(at, masks[3]));
        return Stride == 2 ? ordered(row) : row;
      };
      const auto see = [&](const T* at) __attribute__((always_inline)) {
        return load_columns<Apart, Stride>(at, masks, lane_sequence<T>{});
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
            const auto seen = see(from);
            meet_gradients<0>(sums, now, seen, masks);
            if constexpr (Stride == 1) {
              meet_gradients<1>(sums, before, seen, masks);
              meet_gradients<2>(sums, earlier, seen, masks);
            } else {
              meet_gradients<2>(sums, before, seen, masks);
              meet_gradients<1>(sums, now, see(from + width), masks);
            }
            earlier = before;
            before = now;
          }
          --t;
          continue;
        }
        // What meets nothing may not be finite.
        const auto meet = [&](auto row, dim_t at, const three_columns<T>& seen)
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
/// The gradients of the weights of some channels: planes of an image are `count` apart, of which
/// there are `batch`.
template <class T, int Stride>
[[gnu::noinline]] void gradients_of_planes(const detail::depthwise_planes<T>& job) {
  const dim_t plane = job.height * job.width, out_plane = job.out_height * job.out_width;
  for (dim_t c = 0; c < job.count; ++c) {
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
#endif
