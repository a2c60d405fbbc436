// What there is for convolutions of few channels a group: the general kernels
// for every set, special ones where they pay.

template <class T>
constexpr detail::depthwise_kernels<T> list_depthwise() {
  detail::depthwise_kernels<T> all{};
  all.copying = {vec<T>::size, &pad_rows<false, T>};
  all.interleave = &interleave_rows<T>;
  all.slide_any = &slide_any<T>;
  all.dot_any = &dot_any<T>;
  all.add_sums = &add_sums<T>;
#if IKEBANA_CPU_WIDTH == 16
  all.slides[0] = {3, 1, 7, &slide_rows<T, 3, 1, 7>};
  all.dots[0] = {3, 1, 7, &depthwise_dot_rows<T, 3, 1, 7>};
#if !IKEBANA_CPU_X86
  all.slides[1] = {3, 2, 7, &slide_rows<T, 3, 2, 7>};
  all.slides[2] = {5, 1, 7, &slide_rows<T, 5, 1, 7>};
  all.slides[3] = {5, 2, 7, &slide_rows<T, 5, 2, 7>};
  all.dots[1] = {3, 2, 7, &depthwise_dot_rows<T, 3, 2, 7>};
  all.dots[2] = {5, 1, 4, &depthwise_dot_rows<T, 5, 1, 4>};
#endif
#elif IKEBANA_CPU_WIDTH >= 32
  all.add_lanes = &add_lanes<T>;
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
