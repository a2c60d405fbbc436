// What there is for convolutions of few channels a group: the general kernels
// for every set, special ones where they pay, and of these what `Set` needs.

template <class T, conv_direction Of, conv_set Set>
constexpr detail::depthwise_kernels<T> list_depthwise() {
  [[maybe_unused]] constexpr bool forward = Of == conv_direction::forward,
                                  backward = Of == conv_direction::data,
                                  weights = Of == conv_direction::weights;
  detail::depthwise_kernels<T> all{};
  all.width = vec<T>::size;
  if constexpr (Set.has(conv_algorithm::depthwise_lanes)) {
    all.clear = &clear_array<T>;
    all.sum_lanes = &sum_lanes<T>;
    all.pack_across = &pack_across<T>;
    all.pack_window = &pack_window<T>;
    all.turn = &turn<T>;
    if constexpr (forward) all.finish_rows = &finish_rows<T>;
  }
#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
  const auto list_planes = [&]<int Stride>(std::integral_constant<int, Stride>) {
    auto& to = all.planes[Stride - 1];
    if constexpr (backward && Stride == 2) {
      to.spread = &spread_planes<T>;
    } else {
      to.find_masks = &find_plane_masks<T, Stride>;
      if constexpr (weights)
        to.gradients = &gradients_of_planes<T, Stride>;
      else
        to.convolve = &convolve_planes<T, Stride>;
    }
  };
  if constexpr (Set.has(conv_algorithm::depthwise_planes)) {
    list_planes(std::integral_constant<int, 1>{});
    if constexpr (Set.strides) list_planes(std::integral_constant<int, 2>{});
  }
#endif
  return all;
}
template <class T, conv_direction Of, conv_set Set>
const detail::depthwise_kernels<T>& kernels_for_depthwise() {
  static constexpr detail::depthwise_kernels<T> all = list_depthwise<T, Of, Set>();
  return all;
}
