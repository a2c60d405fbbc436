// Depthwise convolutions of stride 1 whose planes go as one row each (depthwise/planes.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
/// For each register of a plane's positions, one after the other whatever their rows, and each
/// weight of a kernel that reaches `beside` to all sides (at most 2): which of them meet the
/// source.
template <class T>
void find_flat_masks(dim_t beside, dim_t height, dim_t width, void* to) {
  constexpr dim_t w = vec<T>::size, most = 5;
  using bits = typename number<T>::bits;
  auto* mask = static_cast<typename column_mask<T>::type*>(to);
  const dim_t kernel = 2 * beside + 1;
  dim_t y = 0, x = 0;
  while (y < height) {
    bits rows[most][w] = {}, columns[most][w] = {};
    for (dim_t l = 0; l < w && y < height; ++l) {
      for (dim_t k = 0; k < kernel; ++k) {
        rows[k][l] = -bits{y + k >= beside && y + k < height + beside};
        columns[k][l] = -bits{x + k >= beside && x + k < width + beside};
      }
      if (++x == width) ++y, x = 0;
    }
    for (dim_t i = 0; i < kernel; ++i)
      for (dim_t k = 0; k < kernel; ++k)
        *mask++ = mask_of(bits_of<T>::load(rows[i]) & bits_of<T>::load(columns[k]));
  }
}
/// As many channels as C, which share the masks.
template <row_ends Ends, class T, std::size_t... C>
IKEBANA_CPU_INLINE void convolve_flat(const detail::depthwise_planes<T>& job, dim_t channel,
                                      std::index_sequence<C...>) {
  constexpr dim_t w = vec<T>::size;
  const dim_t width = job.width, plane = job.height * width, beside = job.top,
              kernel = 2 * beside + 1, taps = kernel * kernel, next = job.turned ? -1 : 1;
  const T* const factors = job.w + channel * taps + (job.turned ? taps - 1 : 0);
  const T* x = job.x + channel * plane - beside * (width + 1);
  T* out = job.out + channel * plane;
  const auto* mask = static_cast<const typename column_mask<T>::type*>(job.masks);
  const auto start_of = [&](dim_t c) { return job.bias != nullptr ? job.bias[channel + c] : T(0); };
  const vec<T> start[] = {vec<T>::broadcast(start_of(static_cast<dim_t>(C)))...};
  for (dim_t left = plane; left > 0; left -= w, x += w, out += w) {
    vec<T> sums[] = {start[C]...};
    const T *row = x, *weight = factors;
    for (dim_t i = 0; i < kernel; ++i, row += width)
      for (dim_t k = 0; k < kernel; ++k, ++mask, weight += next) {
        const auto where = *mask;
        ((sums[C] = fma_where(vec<T>::broadcast(weight[static_cast<dim_t>(C) * taps]),
                              load_within<Ends>(row + static_cast<dim_t>(C) * plane + k, where),
                              sums[C], where)),
         ...);
      }
    if (job.relu) ((sums[C] = max(vec<T>::zero(), sums[C])), ...);
    const dim_t lanes = left < w ? left : w;
    (sums[C].store(out + static_cast<dim_t>(C) * plane, lanes), ...);
  }
}
template <class T>
[[gnu::noinline]] void convolve_flat_planes(const detail::depthwise_planes<T>& job) {
  constexpr dim_t together = 4;
  dim_t c = 0;
  if (!job.apart)
    for (; c + together <= job.count; c += together)
      convolve_flat<row_ends::masked>(job, c, std::make_index_sequence<std::size_t{together}>{});
  for (; c < job.count; ++c) convolve_flat<row_ends::apart>(job, c, std::make_index_sequence<1>{});
}
#endif
