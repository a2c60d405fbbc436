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
  const auto list_planes = [&]<int Kernel, int Stride>(auto& to) {
    to = {Kernel, Stride, nullptr, nullptr, nullptr, nullptr};
    if constexpr (backward && Stride == 2) {
      to.spread = &spread_planes<T, Kernel>;
    } else if constexpr (weights) {
      to.find_masks = &find_plane_masks<T, Stride, Kernel>;
      to.gradients = &gradients_of_planes<T, Stride>;
    } else if constexpr (IKEBANA_CPU_WIDTH == 64 || Kernel == 3) {
      // The weights of 5x5 fill all registers of AVX2, and more.
      to.find_masks = &find_plane_masks<T, Stride, Kernel>;
      to.convolve = &convolve_planes<T, Kernel, Stride>;
    }
  };
  if constexpr ((Ways & planes_3) != 0) list_planes.template operator()<3, 1>(all.planes[0]);
  if constexpr ((Ways & planes_3_by_2) != 0) list_planes.template operator()<3, 2>(all.planes[1]);
  if constexpr ((Ways & planes_5) != 0 && !weights)
    list_planes.template operator()<5, 1>(all.planes[2]);
  if constexpr ((Ways & planes_5_by_2) != 0 && !weights)
    list_planes.template operator()<5, 2>(all.planes[3]);
#endif
  return all;
}
template <class T, detail::lanes_of Of, unsigned Ways>
const detail::depthwise_kernels<T>& kernels_for_depthwise() {
  static constexpr detail::depthwise_kernels<T> all = list_depthwise<T, Of, Ways>();
  return all;
}
