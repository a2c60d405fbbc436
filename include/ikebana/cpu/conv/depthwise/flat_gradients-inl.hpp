// The weights' gradient of depthwise convolutions of 3x3 whose planes go as one row each
// (depthwise/planes.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
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
