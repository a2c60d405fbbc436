/// The processor foresees walks through memory, but not jumps from row to row.
template <class T>
IKEBANA_CPU_INLINE void prefetch_row(const T* row, dim_t width) {
  constexpr dim_t line = 64 / static_cast<dim_t>(sizeof(T));
  for (dim_t j = 0; j < width && j < 16 * line; j += line) __builtin_prefetch(row + j);
}
inline constexpr dim_t rows_ahead = 4;

template <class T>
void gather_table(dim_t n, dim_t width, const std::int64_t* index, const T* table, T* y) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t i = 0; i < n; ++i, y += width) {
    if (i + rows_ahead < n) prefetch_row(table + index[i + rows_ahead] * width, width);
    const T* const row = table + index[i] * width;
    dim_t j = 0;
    for (; j + w <= width; j += w) vec<T>::load(row + j).store(y + j);
    if (j == width) continue;
    // The last register overlaps the one before: cheaper than a partial one.
    if (width >= w)
      vec<T>::load(row + width - w).store(y + width - w);
    else
      vec<T>::load(row, width).store(y, width);
  }
}

/// For the rows [begin, end) of the table.
template <class T>
void scatter_table(dim_t n, dim_t width, const std::int64_t* index, const T* dy, dim_t begin,
                   dim_t end, dim_t skipped, std::int32_t* frequencies, T* table, bool accumulate) {
  constexpr dim_t w = vec<T>::size;
  const dim_t rows = end - begin;
  if (!accumulate && rows * width > 0)
    std::memset(static_cast<void*>(table + begin * width), 0,
                static_cast<std::size_t>(rows * width) * sizeof(T));
  if (frequencies != nullptr && rows > 0) {
    std::memset(frequencies + begin, 0, static_cast<std::size_t>(rows) * sizeof *frequencies);
    for (dim_t i = 0; i < n; ++i)
      if (index[i] >= begin && index[i] < end) ++frequencies[index[i]];
  }
  for (dim_t i = 0; i < n; ++i, dy += width) {
    if (index[i] == skipped || index[i] < begin || index[i] >= end) continue;
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
