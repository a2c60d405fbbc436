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
  all.sweeps[0] = {3, &sweep_rows<T, 3, 8>, &sweep_rows<T, 3, 4>};
  all.sweeps[1] = {5, &sweep_rows<T, 5, 8>, &sweep_rows<T, 5, 4>};
  all.sweeps[2] = {7, &sweep_rows<T, 7, 8>, &sweep_rows<T, 7, 4>};
  all.gradients[0] = {3, &sweep_gradients<T, 3, 3>};
  all.gradients[1] = {5, &sweep_gradients<T, 5, (IKEBANA_CPU_WIDTH == 64 ? 2 : 1)>};
  all.gradients[2] = {7, &sweep_gradients<T, 7, 1>};
  all.find_pair_masks = &find_pair_masks<T>;
  all.spread_pairs = &spread_pairs<T>;
  constexpr int rows = IKEBANA_CPU_WIDTH == 64 ? 7 : 4;
  all.pairs[0] = {3, rows, &sweep_pairs<T, 3, rows>, &sweep_pair_gradients<T, 3>};
  all.pairs[1] = {5, rows, &sweep_pairs<T, 5, rows>, &sweep_pair_gradients<T, 5>};
#endif
  return all;
}
template <class T>
const detail::depthwise_kernels<T>& kernels_for_depthwise() {
  static constexpr detail::depthwise_kernels<T> all = list_depthwise<T>();
  return all;
}
