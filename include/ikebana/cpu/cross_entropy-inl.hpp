#define IKEBANA_CPU_TERMS [=](dim_t i, dim_t lanes) __attribute__((always_inline))

template <class T>
void cross_entropy_rows(dim_t rows, dim_t classes, const T* logits, const std::int64_t* target,
                        T label_smoothing, std::int64_t ignore_index, T* losses_sum,
                        std::int64_t* counted, T* dlogits, T grad_scale) {
  constexpr dim_t w = vec<T>::size;
  const dim_t together = rows_together<T>(classes);
  const vec<T> absent = absent_lanes<T>(classes);
  const bits_of<T> present = last_lanes<T>(classes);
  const T smooth = label_smoothing / static_cast<T>(classes);
  // In double, so that many rows lose nothing.
  double losses = 0;
  std::int64_t count = 0;
  vec<T> parts[w];
  T most[w], of_target[w] = {}, mean[w] = {}, loss[w], factor[w], near[w * most_together<T>];
  const bool is_short = classes <= most_together<T>;
  const dim_t step = is_short ? (classes + w - 1) / w * w : classes;
  for (dim_t first = 0; first < rows; first += together) {
    const dim_t here = rows - first < together ? rows - first : together;
    const T* const x = logits + first * classes;
    T* const d = dlogits == nullptr ? nullptr : dlogits + first * classes;
    T* const kept = d == nullptr ? nullptr : is_short ? near : d;
    const std::int64_t* const labels = target + first;
    for (dim_t r = 0; r < here; ++r) parts[r] = row_maximum(classes, x + r * classes, absent);
    maximum_each(parts, together, here).store(most);
    // All of this comes before the logits may be overwritten.
    for (dim_t r = 0; r < here; ++r) {
      const T* const row = x + r * classes;
      of_target[r] = labels[r] == ignore_index ? T(0) : row[labels[r]] - most[r];
      mean[r] = T(0);
      if (label_smoothing != T(0)) {
        const vec<T> shift = vec<T>::broadcast(most[r]);
        mean[r] = sum(sum_by_lanes<T>(
                      classes,
                      IKEBANA_CPU_TERMS {
                        const vec<T> v = load_lanes(row + i, lanes) - shift;
                        return lanes == w ? v : keep_lanes(v, present);
                      })) /
                  static_cast<T>(classes);
      }
      parts[r] = exp_shifted(classes, row, kept == nullptr ? kept : kept + r * step,
                             vec<T>::broadcast(most[r]), absent, is_short);
    }
    const vec<T> total = sum_each(parts, together, here);
    const vec<T> log_total = log(total);
    const T rest = T(1) - label_smoothing;
    ((log_total - vec<T>::load(of_target)) * rest +
     (log_total - vec<T>::load(mean)) * label_smoothing)
        .store(loss);
    (vec<T>::broadcast(grad_scale) / total).store(factor);
    for (dim_t r = 0; r < here; ++r) {
      if (labels[r] != ignore_index) {
        ++count;
        losses += static_cast<double>(loss[r]);
      }
      if (d == nullptr) continue;
      T* const row = d + r * classes;
      if (labels[r] == ignore_index) {
        std::memset(static_cast<void*>(row), 0, static_cast<std::size_t>(classes) * sizeof(T));
        continue;
      }
      const vec<T> f = vec<T>::broadcast(factor[r]), s = vec<T>::broadcast(grad_scale * smooth);
      T* const from = kept + r * step;
      const T of_label = from[labels[r]] * factor[r] - grad_scale * smooth;
      map_terms(
          classes, row, IKEBANA_CPU_TERMS { return load_lanes(from + i, lanes) * f - s; });
      row[labels[r]] = of_label - grad_scale * rest;
    }
  }
  *losses_sum = static_cast<T>(losses);
  *counted = count;
}
#undef IKEBANA_CPU_TERMS
