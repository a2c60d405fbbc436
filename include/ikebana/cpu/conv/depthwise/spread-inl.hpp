// The source's gradient of depthwise convolutions of square kernels of stride 2, whole planes at a
// time (depthwise/planes.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
/// Row t of dy and its neighbours give rows 2 t and 2 t + 1, as column s and its do 2 s and
/// 2 s + 1: with a kernel that reaches `beside` to either side, those of [t - before,
/// t - before + met).
template <int Kernel>
struct spread_reach {
  static constexpr int beside = Kernel / 2, before = beside / 2, met = beside + 1;

  /// The kernel row or column with which neighbour i gives remainder a; -1 where it does not.
  static constexpr int tap(int a, int i) {
    const int k = a + beside - 2 * (i - before);
    return k >= 0 && k < Kernel ? k : -1;
  }
};
/// A row of remainder A: even columns, then odd ones.
template <int Kernel, int A, int B, class T, std::size_t... I>
IKEBANA_CPU_INLINE vec<T> spread_sum(const vec<T>* weights, vec<T> sum,
                                     const columns_met<T, spread_reach<Kernel>::met>* rows,
                                     std::index_sequence<I...>) {
  using reach = spread_reach<Kernel>;
  const auto add = [&](auto at) __attribute__((always_inline)) {
    constexpr int i = static_cast<int>(decltype(at)::value) / reach::met,
                  j = static_cast<int>(decltype(at)::value) % reach::met, ky = reach::tap(A, i),
                  kx = reach::tap(B, j);
    if constexpr (ky >= 0 && kx >= 0) sum = fma(weights[ky * Kernel + kx], rows[i].at[j], sum);
  };
  (add(std::integral_constant<std::size_t, I>{}), ...);
  return sum;
}
/// The columns from j on that registers full of dy, or (`Whole`) not, give, from row `first` up to
/// `end` of dy on.
template <int Kernel, bool Whole, class T, std::size_t... I>
IKEBANA_CPU_INLINE void spread_strip(const detail::depthwise_planes<T>& job, const vec<T>* weights,
                                     vec<T> start, const T* x, T* out, dim_t j, dim_t first,
                                     dim_t end, std::index_sequence<I...>) {
  using reach = spread_reach<Kernel>;
  constexpr dim_t w = vec<T>::size;
  const dim_t width = job.width, height = job.height, out_width = job.out_width,
              out_height = job.out_height, wanted = out_width - 2 * j;
  const auto mask = [&](dim_t i) {
    const dim_t none = reach::before - j - i, all = width + none;
    return mask_between<T>(i < reach::before && none > 0 ? none : 0, all < w ? all : w);
  };
  const typename column_mask<T>::type masks[] = {mask(static_cast<dim_t>(I))...};
  dim_t row = first - reach::before;
  const T* from = x + row * width + j - reach::before;
  const auto load = [&]() __attribute__((always_inline)) {
    const T* const at = from;
    const dim_t i = row++;
    from += width;
    using columns = columns_met<T, sizeof...(I)>;
    if (i >= 0 && i < height) [[likely]]
      return columns{{opaque(Whole ? vec<T>::load(at + I) : load_where(at + I, masks[I]))...}};
    return columns{{(static_cast<void>(I), vec<T>::zero())...}};
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
  constexpr auto every = std::make_index_sequence<sizeof...(I) * sizeof...(I)>{};
  columns_met<T, sizeof...(I)> rows[] = {(static_cast<void>(I), load())...};
  dim_t t = first;
  T* to = out + 2 * first * out_width + 2 * j;
  while (true) {
    put(spread_sum<Kernel, 0, 0>(weights, start, rows, every),
        spread_sum<Kernel, 0, 1>(weights, start, rows, every), to);
    if (2 * t + 1 < out_height)
      put(spread_sum<Kernel, 1, 0>(weights, start, rows, every),
          spread_sum<Kernel, 1, 1>(weights, start, rows, every), to + out_width);
    ++t;
    to += 2 * out_width;
    if (t == end) return;
    const auto next = load();
    ((rows[I] = I + 1 < sizeof...(I) ? rows[I + 1 < sizeof...(I) ? I + 1 : 0] : next), ...);
  }
}
/// Planes of which dy has half the rows and columns, rounded up, and which its middle ones meet.
template <class T, int Kernel>
[[gnu::noinline]] void spread_planes(const detail::depthwise_planes<T>& job) {
  using reach = spread_reach<Kernel>;
  constexpr dim_t w = vec<T>::size, block = 8;
  const dim_t width = job.width, height = job.height, plane = height * width,
              out_plane = job.out_height * job.out_width;
  const auto spread = [&]<std::size_t... K>(dim_t c, std::index_sequence<K...>)
      __attribute__((always_inline)) {
    const T* const factors = job.w + c * static_cast<dim_t>(sizeof...(K));
    const vec<T> weights[] = {opaque(vec<T>::broadcast(factors[K]))...};
    const vec<T> start = vec<T>::broadcast(job.bias != nullptr ? job.bias[c] : T(0));
    for (dim_t first = 0; first < height; first += block) {
      const dim_t end = first + block < height ? first + block : height;
      for (dim_t j = 0; j < width; j += w) {
        const auto strip = [&](auto whole) __attribute__((always_inline)) {
          spread_strip<Kernel, decltype(whole)::value>(
              job, weights, start, job.x + c * plane, job.out + c * out_plane, j, first, end,
              std::make_index_sequence<std::size_t{reach::met}>{});
        };
        if (IKEBANA_CPU_WIDTH == 32 && j >= reach::before &&
            j - reach::before + w + reach::met - 1 <= width && 2 * (j + w) <= job.out_width)
          strip(std::bool_constant<IKEBANA_CPU_WIDTH == 32>{});
        else
          strip(std::false_type{});
      }
    }
  };
  for (dim_t c = 0; c < job.count; ++c)
    spread(c, std::make_index_sequence<std::size_t{Kernel * Kernel}>{});
}
#endif
