// Fused attention of one head: blocks of queries against blocks of keys, so that the scores live in
// the first-level cache alone.

template <class T, std::size_t... L>
IKEBANA_CPU_INLINE vec<T> query_numbers(std::index_sequence<L...>) {
#if IKEBANA_CPU_WIDTH == 0
  return {T(0)};
#else
  return {typename vec<T>::raw{static_cast<T>(L)...}};
#endif
}

/// Queries [q, q + queries) against keys [k, k + keys): what every step is told.
template <class T>
struct attention_block {
  dim_t q, queries, k, keys;
  dim_t lanes() const { return queries > vec<T>::size ? attention_lanes<T> : vec<T>::size; }
};

template <class T>
[[gnu::noinline]] void mask_block(const attention_head<T>& n, const attention_block<T>& at, T* x) {
  constexpr dim_t w = vec<T>::size, step = attention_lanes<T>;
  const vec<T> never = vec<T>::broadcast(-static_cast<T>(__builtin_inff()));
  const dim_t first = at.q * n.keys + at.k;
  if (n.added != nullptr)
    transpose_into<T>(at.keys, n.added + first, n.keys, at.queries, T(1), x, step, at.queries,
                      true);
  if (n.ignored != nullptr)
    for (dim_t i = 0; i < at.queries; ++i) {
      const bool* const ignored = n.ignored + first + i * n.keys;
      for (dim_t j = 0; j < at.keys; ++j)
        if (ignored[j]) x[j * step + i] = -static_cast<T>(__builtin_inff());
    }
  if (n.ignored_keys != nullptr)
    for (dim_t j = 0; j < at.keys; ++j)
      if (n.ignored_keys[at.k + j])
        for (dim_t i = 0; i < at.lanes(); i += w) never.store(x + j * step + i);
  if (n.causal && at.k + at.keys > at.q + 1)
    for (dim_t i = 0; i < at.lanes(); i += w) {
      const vec<T> query =
          query_numbers<T>(std::make_index_sequence<static_cast<std::size_t>(w)>{}) +
          static_cast<T>(at.q + i - at.k);
      for (dim_t j = at.q + i < at.k ? 0 : at.q + i - at.k; j < at.keys; ++j) {
        T* const to = x + j * step + i;
        select(query < vec<T>::broadcast(static_cast<T>(j)), never, vec<T>::load(to)).store(to);
      }
    }
}

/// x[j * attention_lanes + i], the masked score of key j for query i; `q` has a query in each lane.
template <class T>
IKEBANA_CPU_INLINE void score_block(const attention_head<T>& n, const attention_block<T>& at,
                                    const T* q, const T* k, dim_t k_row, T* x) {
  small_product<T>(at.keys, at.lanes(), n.width, k, dim_t{1}, k_row, q, attention_lanes<T>, x,
                   attention_lanes<T>, false);
  if (n.added != nullptr || n.ignored != nullptr || n.ignored_keys != nullptr || n.causal)
    mask_block(n, at, x);
}

/// Multiplies the weights of dropped keys by 0, the others by 1 / (1 - p).
template <class T>
struct attention_drop {
  std::uint32_t threshold;
  vec<T> factor;
  explicit attention_drop(double p)
      : threshold{p < 1 ? static_cast<std::uint32_t>(p * 0x1p32) : ~0u},
        factor{vec<T>::broadcast(p < 1 ? static_cast<T>(1 / (1 - p)) : T(0))} {}
  IKEBANA_CPU_INLINE vec<T> operator()(const std::uint32_t* words, vec<T> x) const {
    return select(at_least<T>(words, threshold), x * factor, vec<T>::zero());
  }
  /// Of what has the factor already.
  IKEBANA_CPU_INLINE vec<T> without_factor(const std::uint32_t* words, vec<T> x) const {
    return select(at_least<T>(words, threshold), x, vec<T>::zero());
  }
};
inline constexpr dim_t attention_words = attention_keys * attention_lanes<float> + 16;

template <class T>
IKEBANA_CPU_INLINE void words_of_block(const attention_head<T>& n, const attention_block<T>& at,
                                       std::uint32_t* words) {
  words_across<attention_lanes<T>>(n.dropped.stream,
                                   n.first + static_cast<std::uint64_t>(at.q * n.keys + at.k),
                                   n.keys, at.keys, words);
}

/// Of one register of queries: x becomes exp(x - shift). Returns the sums.
template <class T>
[[gnu::noinline]] vec<T> exp_of_keys(dim_t keys, T* x, const T* shift) {
  constexpr dim_t step = attention_lanes<T>;
  const vec<T> less = vec<T>::load(shift);
  vec<T> sum = vec<T>::zero();
  for (dim_t j = 0; j < keys; ++j, x += step) {
    const vec<T> e = exp_of_difference(vec<T>::load(x) - less);
    e.store(x);
    sum = sum + e;
  }
  return sum;
}

/// A step of the softmax of one register of queries: x becomes exp(x - most) for the largest score
/// so far, `total` their sum so far, `rescale` what earlier weights are to be multiplied by.
template <class T>
IKEBANA_CPU_INLINE void softmax_step(dim_t keys, T* x, T* most, T* total, T* rescale) {
  constexpr dim_t step = attention_lanes<T>;
  const vec<T> never = vec<T>::broadcast(-static_cast<T>(__builtin_inff()));
  const vec<T> before = vec<T>::load(most);
  vec<T> now = before;
  for (dim_t j = 0; j < keys; ++j) now = max(now, vec<T>::load(x + j * step));
  const vec<T> shift = select(now == never, vec<T>::zero(), now);
  now.store(most);
  exp_of_difference(before - shift).store(rescale);
  T shifts[vec<T>::size];
  shift.store(shifts);
  const vec<T> sum = exp_of_keys(keys, x, shifts);
  fma(vec<T>::load(total), vec<T>::load(rescale), sum).store(total);
}

/// Apart from weigh_block, which without dropout needs no room for words on the stack.
template <class T>
[[gnu::noinline]] void drop_block(const attention_head<T>& n, const attention_block<T>& at, T* x) {
  constexpr dim_t w = vec<T>::size, step = attention_lanes<T>;
  alignas(64) std::uint32_t words[attention_words];
  words_of_block(n, at, words);
  const attention_drop<T> drop{n.dropped.p};
  for (dim_t j = 0; j < at.keys * step; j += step)
    for (dim_t i = j; i < j + at.lanes(); i += w) drop(words + i, vec<T>::load(x + i)).store(x + i);
}

template <class T>
[[gnu::noinline]] void weigh_block(const attention_head<T>& n, const attention_block<T>& at, T* x,
                                   T* most, T* total, T* rescale) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t i = 0; i < at.lanes(); i += w)
    softmax_step(at.keys, x + i, most + i, total + i, rescale + i);
  if (n.dropped.p > 0) drop_block(n, at, x);
}

template <class T, class Factor>
IKEBANA_CPU_INLINE void scale_lanes(dim_t n, Factor factor, T* x) {
  constexpr dim_t w = vec<T>::size;
  dim_t i = 0;
  for (; i + w <= n; i += w) (vec<T>::load(x + i) * factor).store(x + i);
  if (i < n) (vec<T>::load(x + i, n - i) * factor).store(x + i, n - i);
}

/// The keys that queries below `end` attend to.
template <class T>
IKEBANA_CPU_INLINE dim_t attended_keys(const attention_head<T>& n, dim_t end) {
  return n.causal && end < n.keys ? end : n.keys;
}

/// Rows with a distance: as they stand in an operand, or, where several blocks of the other side
/// pass over them, a copy without gaps.
template <class T>
struct attention_rows_of {
  T* data;
  dim_t row;
  IKEBANA_CPU_INLINE T* operator[](dim_t r) const { return data + r * row; }
};
template <class T>
IKEBANA_CPU_INLINE attention_rows_of<const T> source_of(bool copies, dim_t rows, dim_t width,
                                                        const T* from, dim_t row, T* to) {
  if (!copies) return {from, row};
  copy_block<T>(rows, width, from, row, to, width);
  return {to, width};
}

/// What is done once the queries from `from` have met all keys: out = sums / total, in `out` or
/// from a copy without gaps.
template <class T>
void finish_queries(dim_t count, dim_t width, const T* most, const T* total,
                    attention_rows_of<T> sums, attention_rows_of<T> out, T* largest, T* factors) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t r = 0; r < count; ++r) {
    if (total[r] == T(0)) {
      clear_block<T>(1, width, out[r], 0);
      continue;
    }
    const vec<T> factor = vec<T>::broadcast(T(1) / total[r]);
    dim_t i = 0;
    for (; i + w <= width; i += w) (vec<T>::load(sums[r] + i) * factor).store(out[r] + i);
    if (i < width) (vec<T>::load(sums[r] + i, width - i) * factor).store(out[r] + i, width - i);
  }
  if (largest == nullptr) return;
  for (dim_t i = 0; i < count; i += w) {
    // Where no key is attended to, backward is to find weights of 0.
    const vec<T> sum = vec<T>::load(total + i);
    const lane_mask<T> none = sum == vec<T>::zero();
    const dim_t lanes = count - i < w ? count - i : w;
    select(none, vec<T>::broadcast(static_cast<T>(__builtin_inff())), vec<T>::load(most + i))
        .store(largest + i, lanes);
    select(none, vec<T>::zero(), T(1) / sum).store(factors + i, lanes);
  }
}

template <class T>
void attend(const attention_head<T>& n, T* out, dim_t out_row, T* normalizers) {
  constexpr dim_t w = vec<T>::size, lanes = attention_lanes<T>;
  T* const x = n.scratch;
  alignas(64) T most[attention_queries], total[attention_queries], rescale[lanes];
  for (dim_t from = 0; from < n.queries; from += attention_queries) {
    const dim_t count = n.queries - from < attention_queries ? n.queries - from : attention_queries;
    const dim_t padded = (count + lanes - 1) / lanes * lanes;
    T *const q = x + attention_keys * lanes, *const packed = q + padded * n.width;
    for (dim_t i = 0; i < padded; i += lanes)
      transpose_into<T>(n.width, n.q + (from + i) * n.q_row, n.q_row,
                        count - i < lanes ? count - i : lanes, n.scale, q + i * n.width, lanes,
                        lanes, false);
    for (dim_t i = 0; i < padded; i += w) {
      vec<T>::broadcast(-static_cast<T>(__builtin_inff())).store(most + i);
      vec<T>::zero().store(total + i);
    }
    const dim_t keys = attended_keys(n, from + count);
    const attention_rows_of<T> to{out + from * out_row, out_row};
    const attention_rows_of<T> sums =
        keys <= attention_keys
            ? to
            : attention_rows_of<T>{packed + 2 * attention_keys * n.width, n.width};
    for (dim_t k = 0; k < keys; k += attention_keys) {
      const dim_t all = keys - k < attention_keys ? keys - k : attention_keys;
      const auto source =
                     source_of<T>(padded > lanes, all, n.width, n.k + k * n.k_row, n.k_row, packed),
                 values = source_of<T>(padded > lanes, all, n.width, n.v + k * n.v_row, n.v_row,
                                       packed + attention_keys * n.width);
      for (dim_t i = 0; i < count; i += lanes) {
        const dim_t queries = count - i < lanes ? count - i : lanes;
        const dim_t last = attended_keys(n, from + i + queries) - k;
        if (last <= 0) continue;
        const attention_block<T> at{from + i, queries, k, last < all ? last : all};
        score_block<T>(n, at, q + i * n.width, source.data, source.row, x);
        weigh_block<T>(n, at, x, most + i, total + i, rescale);
        if (k > 0)
          for (dim_t r = 0; r < queries; ++r)
            if (rescale[r] != T(1)) scale_lanes(n.width, rescale[r], sums[i + r]);
        small_product<T>(queries, n.width, at.keys, x, lanes, dim_t{1}, values.data, values.row,
                         sums[i], sums.row, k > 0);
      }
    }
    finish_queries<T>(count, n.width, most, total, sums, to,
                      normalizers == nullptr ? nullptr : normalizers + from,
                      normalizers == nullptr ? nullptr : normalizers + n.queries + from);
  }
}
