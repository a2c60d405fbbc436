/// Neighbouring positions of the plane that a product walks, all in one row of it.
template <class T>
struct position_run {
  dim_t column, length;
  const T* image;
  dim_t z, y, x;  // of the first position, in the coordinates that a kernel element is added to
};

/// The columns of an image as a factor of a product: element (p, i) is what kernel element p
/// (channel, then place in the kernel) meets at position i of all images' planes. Forward, position
/// o meets o * stride - padding + k * dilation of the source. Backward, position i of the input
/// meets (i + padding - k * dilation) / stride of the output, where that is whole.
template <class T>
struct image_operand : always_packed<T> {
  static constexpr dim_t most_positions = 64;

  const conv_geometry& g;
  const T* data;
  dim_t image_size;                      // from one image to the next
  const std::array<dim_t, 3>&from, &to;  // extents of the source and of the plane of positions
  bool backward;

  void pack(T* panel, dim_t width, dim_t p, dim_t depth, dim_t i, dim_t count) const {
    position_run<T> runs[most_positions];
    const int run_count = find_runs(runs, i, count);
    const dim_t taps = conv_geometry::volume(g.kernel);
    dim_t channel = p / taps, tap = p % taps;
    dim_t kz = tap / (g.kernel[1] * g.kernel[2]), ky = tap / g.kernel[2] % g.kernel[1],
          kx = tap % g.kernel[2];
    for (dim_t q = 0; q < depth; ++q, panel += width) {
      for (int r = 0; r < run_count; ++r) {
        const T* const row = row_at(runs[r], channel, kz, ky);
        T* const at = panel + runs[r].column;
        if (row == nullptr)
          clear_few(at, runs[r].length);
        else
          copy_row(at, row, runs[r], kx);
      }
      if (count < width) clear_few(panel + count, width - count);
      if (++kx == g.kernel[2]) {
        kx = 0;
        if (++ky == g.kernel[1]) {
          ky = 0;
          if (++kz == g.kernel[0]) {
            kz = 0;
            ++channel;
          }
        }
      }
    }
  }

  int find_runs(position_run<T>* runs, dim_t i, dim_t count) const {
    const dim_t plane = conv_geometry::volume(to);
    dim_t image = i / plane, z = i % plane / (to[1] * to[2]), y = i / to[2] % to[1], x = i % to[2];
    int n = 0;
    for (dim_t c = 0; c < count;) {
      const dim_t length = to[2] - x < count - c ? to[2] - x : count - c;
      position_run<T>& run = runs[n++];
      run = {c, length, data + image * image_size, start(z, 0), start(y, 1), start(x, 2)};
      c += length;
      x = 0;
      if (++y == to[1]) {
        y = 0;
        if (++z == to[0]) {
          z = 0;
          ++image;
        }
      }
    }
    return n;
  }

  dim_t start(dim_t position, std::size_t d) const {
    return backward ? position + g.padding[d] : position * g.stride[d] - g.padding[d];
  }

  /// Where kernel element k of dimension d meets the source; -1 where it does not.
  dim_t met(dim_t start, dim_t k, std::size_t d) const {
    dim_t at = start + (backward ? -k : k) * g.dilation[d];
    if (backward && g.stride[d] != 1) {
      if (at < 0 || at % g.stride[d] != 0) return -1;
      at /= g.stride[d];
    }
    return at < from[d] ? at : -1;
  }

  const T* row_at(const position_run<T>& run, dim_t channel, dim_t kz, dim_t ky) const {
    const dim_t z = met(run.z, kz, 0), y = met(run.y, ky, 1);
    return z < 0 || y < 0 ? nullptr : run.image + ((channel * from[0] + z) * from[1] + y) * from[2];
  }

  void copy_row(T* at, const T* row, const position_run<T>& run, dim_t kx) const {
    const dim_t stride = g.stride[2], width = from[2];
    const dim_t first = run.x + (backward ? -kx : kx) * g.dilation[2];
    if (stride == 1) {
      dim_t begin = first < 0 ? -first : 0, end = width - first;
      if (end > run.length) end = run.length;
      if (begin >= end) return clear_few(at, run.length);
      if (begin > 0) clear_few(at, begin);
      copy_few(at + begin, row + first + begin, end - begin);
      if (end < run.length) clear_few(at + end, run.length - end);
    } else if (!backward) {
      dim_t x = first;
      for (dim_t l = 0; l < run.length; ++l, x += stride)
        at[l] = x >= 0 && x < width ? row[x] : T(0);
    } else {
      for (dim_t l = 0; l < run.length; ++l) {
        const dim_t x = first + l;
        at[l] = x >= 0 && x % stride == 0 && x / stride < width ? row[x / stride] : T(0);
      }
    }
  }
};

/// Planes of channels as the other factor of a product over positions: element (p, i) is channel i
/// at position p of all images' planes.
template <class T>
struct plane_operand : always_packed<T> {
  const T* data;
  dim_t plane, image_size;

  void pack(T* to, dim_t width, dim_t p, dim_t depth, dim_t i, dim_t count) const {
    while (depth > 0) {
      const dim_t image = p / plane, at = p % plane;
      const dim_t length = plane - at < depth ? plane - at : depth;
      pack_across(to, width, data + image * image_size + i * plane + at, plane, length, count);
      to += length * width;
      p += length;
      depth -= length;
    }
  }
};

/// The columns of an image with positions as the summed dimension.
template <class T>
struct transposed_image_operand : always_packed<T> {
  image_operand<T> columns;

  void pack(T* to, dim_t width, dim_t p, dim_t depth, dim_t i, dim_t count) const {
    constexpr dim_t step = image_operand<T>::most_positions;
    alignas(64) T block[static_cast<std::size_t>(gemm_tile<T>::columns * step)];
    for (dim_t q = 0; q < depth; q += step) {
      const dim_t length = depth - q < step ? depth - q : step;
      columns.pack(block, step, i, count, p + q, length);
      pack_across(to + q * width, width, static_cast<const T*>(block), step, length, count);
    }
  }
};

/// The weights with the output channels in the summed dimension: element (p, i) is the weight of
/// output channel p / taps, input channel i and kernel element p % taps.
template <class T>
struct weight_operand : always_packed<T> {
  const T* w;
  dim_t taps, in_channels;

  void pack(T* to, dim_t width, dim_t p, dim_t depth, dim_t i, dim_t count) const {
    dim_t channel = p / taps, tap = p % taps;
    for (dim_t q = 0; q < depth; ++q, to += width) {
      const T* const from = w + (channel * in_channels + i) * taps + tap;
      for (dim_t c = 0; c < width; ++c) to[c] = c < count ? from[c * taps] : T(0);
      if (++tap == taps) {
        tap = 0;
        ++channel;
      }
    }
  }
};

/// Where tiles go whose columns are positions of all images' planes.
template <class T>
struct image_result {
  T* y;
  dim_t plane, image_size;
  const T* bias;

  placement<T> place(dim_t i, dim_t j, bool first) const {
    const dim_t image = j / plane, at = j % plane;
    if ((first && bias != nullptr) || at + gemm_tile<T>::columns > plane) return {};
    return {y + image * image_size + i * plane + at, plane, !first};
  }

  void take(const T* tile, dim_t i, dim_t j, dim_t rows, dim_t columns, bool first) const {
    constexpr dim_t w = vec<T>::size;
    for (dim_t c = 0; c < columns;) {
      const dim_t image = (j + c) / plane, at = (j + c) % plane;
      const dim_t length = plane - at < columns - c ? plane - at : columns - c;
      T* to = y + image * image_size + i * plane + at;
      const T* from = tile + c;
      for (dim_t r = 0; r < rows; ++r, to += plane, from += gemm_tile<T>::columns) {
        const vec<T> offset = vec<T>::broadcast(first && bias != nullptr ? bias[i + r] : T(0));
        for (dim_t v = 0; v < length; v += w) {
          const dim_t n = lanes_left<T>(length - v);
          if (n == w)
            (vec<T>::load(from + v) + (first ? offset : vec<T>::load(to + v))).store(to + v);
          else
            (vec<T>::load(from + v, n) + (first ? offset : vec<T>::load(to + v, n)))
                .store(to + v, n);
        }
      }
      c += length;
    }
  }
};

template <class T>
void convolve(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
  const dim_t inputs = g.in_channels / g.groups, outputs = g.out_channels / g.groups;
  const dim_t in_plane = conv_geometry::volume(g.in), out_plane = conv_geometry::volume(g.out);
  const dim_t k = inputs * conv_geometry::volume(g.kernel);
  for (dim_t group = 0; group < g.groups; ++group)
    multiply<T>(
        outputs, g.batch * out_plane, k, matrix_operand<T>{w + group * outputs * k, k, true, false},
        image_operand<T>{
            {}, g, x + group * inputs * in_plane, g.in_channels * in_plane, g.in, g.out, false},
        image_result<T>{y + group * outputs * out_plane, out_plane, g.out_channels * out_plane,
                        bias != nullptr ? bias + group * outputs : nullptr});
}

template <class T>
void convolve_backward_data(const conv_geometry& g, const T* dy, const T* w, const T* bias, T* dx) {
  const dim_t inputs = g.in_channels / g.groups, outputs = g.out_channels / g.groups;
  const dim_t in_plane = conv_geometry::volume(g.in), out_plane = conv_geometry::volume(g.out);
  const dim_t taps = conv_geometry::volume(g.kernel);
  for (dim_t group = 0; group < g.groups; ++group)
    multiply<T>(
        inputs, g.batch * in_plane, outputs * taps,
        weight_operand<T>{{}, w + group * outputs * inputs * taps, taps, inputs},
        image_operand<T>{
            {}, g, dy + group * outputs * out_plane, g.out_channels * out_plane, g.out, g.in, true},
        image_result<T>{dx + group * inputs * in_plane, in_plane, g.in_channels * in_plane,
                        bias != nullptr ? bias + group * inputs : nullptr});
}

template <class T>
void convolve_backward_weights(const conv_geometry& g, const T* x, const T* dy, T* dw,
                               bool accumulate) {
  const dim_t inputs = g.in_channels / g.groups, outputs = g.out_channels / g.groups;
  const dim_t in_plane = conv_geometry::volume(g.in), out_plane = conv_geometry::volume(g.out);
  const dim_t k = inputs * conv_geometry::volume(g.kernel);
  for (dim_t group = 0; group < g.groups; ++group)
    multiply<T>(
        outputs, k, g.batch * out_plane,
        plane_operand<T>{
            {}, dy + group * outputs * out_plane, out_plane, g.out_channels * out_plane},
        transposed_image_operand<T>{
            {},
            {{}, g, x + group * inputs * in_plane, g.in_channels * in_plane, g.in, g.out, false}},
        matrix_result<T>{dw + group * outputs * k, k, T(1), accumulate ? T(1) : T(0), nullptr});
}

template <class T>
void sum_planes(dim_t batch, dim_t channels, dim_t plane, const T* x, T* sums, bool accumulate) {
  for (dim_t c = 0; c < channels; ++c) {
    T total = accumulate ? sums[c] : T(0);
    for (dim_t b = 0; b < batch; ++b) total += sum_array(plane, x + (b * channels + c) * plane);
    sums[c] = total;
  }
}
