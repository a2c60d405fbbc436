// What there is for convolutions of few channels a group: the general kernels
// for every set, special ones where they pay.

template <class T>
constexpr detail::depthwise_kernels<T> list_depthwise() {
  detail::depthwise_kernels<T> all{};
  all.width = vec<T>::size;
  all.sum_lanes = &sum_lanes<T>;
#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
  all.add_sums = &add_sums<T>;
  all.find_masks = &find_masks<T>;
  all.sweeps[0] = {5, &sweep_rows<T, 5, false>, &sweep_rows<T, 5, true>, nullptr};
  all.sweeps[1] = {7, &sweep_rows<T, 7, false>, &sweep_rows<T, 7, true>, nullptr};
  all.gradients[0] = {5, &sweep_gradients<T, 5, (IKEBANA_CPU_WIDTH == 64 ? 2 : 1)>};
  all.gradients[1] = {7, &sweep_gradients<T, 7, 1>};
  // The weights of 5x5 fill all registers of AVX2, and more.
  constexpr int any = std::numeric_limits<int>::max(), few = IKEBANA_CPU_WIDTH == 32 ? 48 : any;
  all.planes[0] = {3,
                   1,
                   any,
                   &find_plane_masks<T, 1, 3>,
                   &convolve_planes<T, 3, 1>,
                   &gradients_of_planes<T, 1>,
                   nullptr};
  all.planes[1] = {3,
                   2,
                   any,
                   &find_plane_masks<T, 2, 3>,
                   &convolve_planes<T, 3, 2>,
                   &gradients_of_planes<T, 2>,
                   &spread_planes<T, 3>};
  all.planes[2] = {5,       1,      few, &find_plane_masks<T, 1, 5>, &convolve_planes<T, 5, 1>,
                   nullptr, nullptr};
  all.planes[3] = {5,
                   2,
                   any,
                   &find_plane_masks<T, 2, 5>,
                   &convolve_planes<T, 5, 2>,
                   nullptr,
                   &spread_planes<T, 5>};
  all.convolve_row = &convolve_row<T>;
  all.row_gradients = &row_gradients<T>;
  all.convolve_copies = &convolve_copies<T>;
  all.spread_copies = &spread_copies<T>;
  all.gradients_of_copies = &gradients_of_copies<T>;
  all.find_flat_masks = &find_flat_masks<T>;
  all.convolve_flat = &convolve_flat_planes<T>;
  all.largest_flat = IKEBANA_CPU_WIDTH == 32 ? 16 : any;
  all.flat_gradients = &gradients_of_flat_planes<T>;
#if IKEBANA_CPU_WIDTH == 64
  all.convolve_rows_shifted = &convolve_rows_shifted<T>;
  all.find_pair_masks = &find_pair_masks<T>;
  all.spread_pairs = &spread_pairs<T>;
  if constexpr (sizeof(T) == 4) all.sweeps[1].of_two = &sweep_rows<T, 7, true, true>;
  all.pairs[0] = {5, &sweep_pair_gradients<T, 5>};
#endif
#endif
  return all;
}
template <class T>
const detail::depthwise_kernels<T>& kernels_for_depthwise() {
  static constexpr detail::depthwise_kernels<T> all = list_depthwise<T>();
  return all;
}
