// What there is for convolutions of few channels a group: the general kernels
// for every set, special ones where they pay, and of these what `Ways` (depthwise/ways.hpp) need.

template <class T, detail::lanes_of Of, unsigned Ways>
constexpr detail::depthwise_kernels<T> list_depthwise() {
  using namespace detail::depthwise_way;
  using detail::lanes_of;
  [[maybe_unused]] constexpr bool forward = Of == lanes_of::forward,
                                  backward = Of == lanes_of::backward_data,
                                  weights = Of == lanes_of::backward_weights;
  detail::depthwise_kernels<T> all{};
  all.width = vec<T>::size;
  if constexpr ((Ways & lanes) != 0) {
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
  if constexpr ((Ways & planes_by_1) != 0) list_planes(std::integral_constant<int, 1>{});
  if constexpr ((Ways & planes_by_2) != 0) list_planes(std::integral_constant<int, 2>{});
#endif
  return all;
}
template <class T, detail::lanes_of Of, unsigned Ways>
const detail::depthwise_kernels<T>& kernels_for_depthwise() {
  static constexpr detail::depthwise_kernels<T> all = list_depthwise<T, Of, Ways>();
  return all;
}
