// The weights' gradient of depthwise convolutions of 3x3, whole planes at a time
// (depthwise/planes.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
/// Rows from `first` up to `end` of a strip of a plane. Kernel row 0 meets row Stride t - top of x
/// with row t of dy, so that a row of x is loaded once for all rows of dy that see it; what sees
/// row t last does so with the row or two below.
template <bool Apart, int Stride, class T, class M>
IKEBANA_CPU_INLINE void add_strip_gradients(const detail::depthwise_planes<T>& job, const T* x,
                                            const T* dy, const M* masks, dim_t first, dim_t end,
                                            vec<T>* sums) {
  const dim_t width = job.width, height = job.height, out_width = job.out_width,
              out_height = job.out_height;
  dim_t i = Stride * first - job.top;
  const T *from = x + i * width, *of = dy + first * out_width;
  const auto load_dy = [&](const T* row) __attribute__((always_inline)) {
    const vec<T> found = load_met<Apart>(row, masks[3]);
    return Stride == 2 ? ordered(found) : found;
  };
  // The next row of x.
  const auto visit = [&](auto f) __attribute__((always_inline)) {
    visit_columns<Apart, Stride>(from, masks, dim_t{1}, f);
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
      now = next_dy();
      visit([&](auto k, vec<T> seen) __attribute__((always_inline)) {
        meet(k, now, seen);
        meet(3 + k, before, seen);
        meet(6 + k, earlier, seen);
      });
    };
    i += left;
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
      now = next_dy();
      visit([&](auto k, vec<T> seen) __attribute__((always_inline)) {
        meet(k, now, seen);
        meet(6 + k, before, seen);
      });
      visit([&](auto k, vec<T> seen) __attribute__((always_inline)) { meet(3 + k, now, seen); });
    };
    i += 2 * left;
    for (; left > 0; --left) {
      step(b, c);
      b = c;
    }
    if (end < out_height) return;
    visit_if_inside([&](auto k, vec<T> seen)
                        __attribute__((always_inline)) { meet(6 + k, b, seen); });
  }
}
/// The sums of one plane.
template <int Stride, class T>
IKEBANA_CPU_INLINE void add_plane_gradients(const detail::depthwise_planes<T>& job, const T* x,
                                            const T* dy, vec<T>* sums) {
  using mask_type = typename column_mask<T>::type;
  constexpr dim_t strip = strip_of_planes<T, Stride>,
                  block = IKEBANA_CPU_WIDTH == 32 && Stride == 1 ? 32 : 16;
  const dim_t out_width = job.out_width, out_height = job.out_height;
  for (dim_t first = 0; first < out_height; first += block) {
    const auto* mask = static_cast<const mask_type*>(job.masks);
    for (dim_t j = 0; j < out_width; j += strip, mask += masks_of_strip) {
      const mask_type masks[] = {mask[0], mask[1], mask[2], mask[3], mask[4], mask[5]};
      const dim_t at = Stride * j - job.left;
      const auto add = [&](auto apart) __attribute__((always_inline)) {
        add_strip_gradients<decltype(apart)::value, Stride>(job, x + at, dy + j, masks, first,
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
/// The gradients of the weights of `count` channels: planes of an image are `channels` apart, of
/// which there are `batch`.
template <class T, int Stride>
[[gnu::noinline]] void gradients_of_planes(const detail::depthwise_planes<T>& job) {
  for (dim_t c = 0; c < job.count; ++c) {
    const vec<T> none = vec<T>::zero();
    vec<T> sums[] = {none, none, none, none, none, none, none, none, none};
    for (dim_t image = 0; image < job.batch; ++image) {
      const dim_t at = image * job.channels + c;
      add_plane_gradients<Stride>(job, job.x + at * job.plane, job.dy + at * job.out_plane, sums);
    }
    T* const to = job.out + c * 9;
    // No index that varies, so that the sums stay in registers.
    [&]<std::size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
      ((to[I] = (job.accumulate ? to[I] : T(0)) + sum(sums[I])), ...);
    }
    (std::make_index_sequence<9>{});
  }
}
#endif
