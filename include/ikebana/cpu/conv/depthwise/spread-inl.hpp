// The source's gradient of depthwise convolutions of 3x3 of stride 2, whole planes at a time
// (depthwise/planes.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
/// Row t of dy and the next give rows 2 t and 2 t + 1, as column s and the next do 2 s and 2 s + 1:
/// the columns from 2 j on that registers full of dy, or (`Whole`) not, give, from row `first` up
/// to `end` of dy on.
template <bool Whole, class T>
IKEBANA_CPU_INLINE void spread_strip(const detail::depthwise_planes<T>& job, const vec<T>* weights,
                                     vec<T> start, const T* x, T* out, dim_t j, dim_t first,
                                     dim_t end) {
  constexpr dim_t w = vec<T>::size;
  const dim_t width = job.width, height = job.height, out_width = job.out_width,
              wanted = out_width - 2 * j;
  const auto mask = [&](dim_t all) { return mask_between<T>(0, all < w ? all : w); };
  const auto mask_here = mask(width - j), mask_next = mask(width - j - 1);
  struct row_met {
    vec<T> here, next;
  };
  const auto load = [&](dim_t i) __attribute__((always_inline)) {
    if (i >= height) [[unlikely]]
      return row_met{vec<T>::zero(), vec<T>::zero()};
    const T* const from = x + i * width + j;
    return row_met{load_met<!Whole>(from, mask_here), load_met<!Whole>(from + 1, mask_next)};
  };
  const auto put = [&](vec<T> even, vec<T> odd, T * to) __attribute__((always_inline)) {
    const auto both = interleave_pairs(even, odd, lane_sequence<T>{});
    if (Whole || wanted >= 2 * w) {
      both.even.store(to);
      both.odd.store(to + w);
    } else if (wanted > w) {
      both.even.store(to);
      both.odd.store(to + w, wanted - w);
    } else {
      both.even.store(to, wanted);
    }
  };
  row_met row = load(first);
  T* to = out + 2 * first * out_width + 2 * j;
  for (dim_t t = first; t < end; ++t, to += 2 * out_width) {
    const row_met below = load(t + 1);
    put(fma(weights[4], row.here, start),
        fma(weights[3], row.next, fma(weights[5], row.here, start)), to);
    if (2 * t + 1 < job.out_height)
      put(fma(weights[1], below.here, fma(weights[7], row.here, start)),
          fma(weights[0], below.next,
              fma(weights[2], below.here,
                  fma(weights[6], row.next, fma(weights[8], row.here, start)))),
          to + out_width);
    row = below;
  }
}
/// Planes of which dy has half the rows and columns, rounded up, and which its middle ones meet.
template <class T>
[[gnu::noinline]] void spread_planes(const detail::depthwise_planes<T>& job) {
  constexpr dim_t w = vec<T>::size, block = 8;
  const dim_t width = job.width, height = job.height;
  const auto spread = [&]<std::size_t... K>(dim_t c, std::index_sequence<K...>)
      __attribute__((always_inline)) {
    const vec<T> weights[] = {opaque(vec<T>::broadcast(job.w[c * 9 + static_cast<dim_t>(K)]))...};
    const vec<T> start = vec<T>::broadcast(job.bias != nullptr ? job.bias[c] : T(0));
    for (dim_t first = 0; first < height; first += block) {
      const dim_t end = first + block < height ? first + block : height;
      for (dim_t j = 0; j < width; j += w) {
        const auto strip = [&](auto whole) __attribute__((always_inline)) {
          spread_strip<decltype(whole)::value>(job, weights, start, job.x + c * job.plane,
                                               job.out + c * job.out_plane, j, first, end);
        };
        if (IKEBANA_CPU_WIDTH == 32 && j + w + 1 <= width && 2 * (j + w) <= job.out_width)
          strip(std::bool_constant<IKEBANA_CPU_WIDTH == 32>{});
        else
          strip(std::false_type{});
      }
    }
  };
  for (dim_t c = 0; c < job.count; ++c) spread(c, std::make_index_sequence<9>{});
}
#endif
