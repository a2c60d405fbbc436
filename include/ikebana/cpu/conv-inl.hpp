/// sums[c] = (accumulate ? sums[c] : 0) + the sum of channel c of all images, for c of [begin,
/// end).
template <class T>
void sum_planes(dim_t batch, dim_t channels, dim_t begin, dim_t end, dim_t plane, const T* x,
                T* sums, bool accumulate) {
  for (dim_t c = begin; c < end; ++c) {
    T total = accumulate ? sums[c] : T(0);
    for (dim_t b = 0; b < batch; ++b) total += sum_array(plane, x + (b * channels + c) * plane);
    sums[c] = total;
  }
}
