template <class T>
void scatter_table(dim_t n, dim_t width, const std::int64_t* index, const T* dy, dim_t rows,
                   dim_t skipped, std::int32_t* frequencies, T* table, bool accumulate) {
  constexpr dim_t w = vec<T>::size;
  if (!accumulate && rows * width > 0)
    std::memset(static_cast<void*>(table), 0, static_cast<std::size_t>(rows * width) * sizeof(T));
  if (frequencies != nullptr && rows > 0) {
    std::memset(frequencies, 0, static_cast<std::size_t>(rows) * sizeof *frequencies);
    for (dim_t i = 0; i < n; ++i) ++frequencies[index[i]];
  }
  for (dim_t i = 0; i < n; ++i, dy += width) {
    if (index[i] == skipped) continue;
    T* const row = table + index[i] * width;
    const T scale = frequencies != nullptr ? T(1) / static_cast<T>(frequencies[index[i]]) : T(1);
    dim_t j = 0;
    for (; j + w <= width; j += w)
      (vec<T>::load(row + j) + vec<T>::load(dy + j) * scale).store(row + j);
    if (j < width)
      (vec<T>::load(row + j, width - j) + vec<T>::load(dy + j, width - j) * scale)
          .store(row + j, width - j);
  }
}
