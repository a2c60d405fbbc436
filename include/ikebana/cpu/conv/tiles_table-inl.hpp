// The tiles of convolutions that there are (tiles.hpp), and of these what `Parts` need.

/// Where few channels are left, tiles of fewer rows are wider, so that sums do not wait for each
/// other.
template <class T>
inline constexpr typename detail::conv_tiles<T>::slide_shape conv_slides[] = {
#if IKEBANA_CPU_WIDTH == 64
    {8, 3, &slide_tile<T, 8, 3>, &slide_tile<T, 8, 1>},
    {6, 4, &slide_tile<T, 6, 4>, &slide_tile<T, 6, 1>},
    {3, 8, &slide_tile<T, 3, 8>, nullptr},
    {1, 8, &slide_tile<T, 1, 8>, nullptr},
#elif IKEBANA_CPU_WIDTH == 32
    {4, 3, &slide_tile<T, 4, 3>, &slide_tile<T, 4, 1>},
    {3, 4, &slide_tile<T, 3, 4>, nullptr},
    {1, 8, &slide_tile<T, 1, 8>, nullptr},
#elif IKEBANA_CPU_WIDTH == 16
    {4, 3, &slide_tile<T, 4, 3>, nullptr},
    {1, 8, &slide_tile<T, 1, 8>, nullptr},
#else
    {4, 2, &slide_tile<T, 4, 2>, nullptr},
    {1, 4, &slide_tile<T, 1, 4>, nullptr},
#endif
};
template <class T, int Rows, int Weights>
inline constexpr typename detail::conv_tiles<T>::dot_shape dot_shape{
    Rows, Weights, &dot_tile<T, Rows, Weights>, &dot_tile<T, Rows, 1>};
template <class T>
inline constexpr typename detail::conv_tiles<T>::dot_shape conv_dots[] = {
#if IKEBANA_CPU_WIDTH == 64
    dot_shape<T, 6, 4>,
    dot_shape<T, 4, 6>,
    dot_shape<T, 2, 8>,
    dot_shape<T, 1, 8>,
#else
    dot_shape<T, 3, 4>,
    dot_shape<T, 2, 4>,
    dot_shape<T, 1, 8>,
#endif
};
template <class T, detail::conv_parts Parts>
constexpr detail::conv_tiles<T> make_conv_tiles() {
  detail::conv_tiles<T> t{};
  t.width = vec<T>::size;
  t.clear = &clear_array<T>;
  t.fill_rows = &fill_rows<T>;
  t.copy_rows = &copy_planes<T, Parts.strides>;
  t.place_rows = &place_rows<T, Parts.strides>;
  t.add_rows = &add_rows<T>;
  t.finish_rows = &finish_rows<T>;
  t.pack_across = &pack_across<T>;
  t.place_across = &place_across<T>;
  if constexpr (Parts.slides) t.slides = conv_slides<T>;
  if constexpr (Parts.dots) t.dots = conv_dots<T>;
  return t;
}
template <class T, detail::conv_parts Parts = detail::conv_parts{}>
const detail::conv_tiles<T>& tiles_for_conv() {
  static constexpr detail::conv_tiles<T> all = make_conv_tiles<T, Parts>();
  return all;
}
