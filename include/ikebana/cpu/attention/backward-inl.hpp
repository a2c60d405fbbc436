// The gradients of fused attention: the weights of a block are computed once more, from the scores,
// each row's largest and its sum, not from the logarithm of the sum: beside scores of some
// thousands that has no digits left.

/// The values of some keys for the gradient of their weights: with dropout's factor, so that these
/// gradients are rounded as the output was (see mean_gradients).
template <class T>
IKEBANA_CPU_INLINE attention_rows_of<const T> values_of(const attention_head<T>& n, bool copies,
                                                        dim_t key, dim_t keys, T* to) {
  const bool drops = n.dropped.p > 0;
  const auto values =
      source_of<T>(copies || drops, keys, n.width, n.v + key * n.v_row, n.v_row, to);
  if (drops) scale_lanes(keys * n.width, attention_drop<T>{n.dropped.p}.factor, to);
  return values;
}

/// x, the scores, becomes the dropped weights, and d, the gradient of these (with dropout's
/// factor), `scale` times that of the scores. `mean`: that of d under the weights.
template <class T>
[[gnu::noinline]] void weigh_block_backward(const attention_head<T>& n,
                                            const attention_block<T>& at, T* x, T* d,
                                            const T* largest, const T* factors, const T* mean,
                                            T scale) {
  constexpr dim_t w = vec<T>::size, step = attention_lanes<T>;
  const bool drops = n.dropped.p > 0;
  const attention_drop<T> drop{n.dropped.p};
  alignas(64) std::uint32_t words[attention_words];
  if (drops) words_of_block(n, at, words);
  for (dim_t i = 0; i < at.lanes(); i += w) {
    exp_of_keys(at.keys, x + i, largest + i);
    const vec<T> center = vec<T>::load(mean + i), factor = vec<T>::load(factors + i);
    for (dim_t j = i; j < at.keys * step; j += step) {
      const vec<T> weight = vec<T>::load(x + j) * factor;
      vec<T> slope = vec<T>::load(d + j);
      if (drops) slope = drop.without_factor(words + j, slope);
      (drops ? drop(words + j, weight) : weight).store(x + j);
      (weight * (slope - center) * scale).store(d + j);
    }
  }
}

/// The mean of the gradients of each query's weights, under these weights: the product of its
/// output and of the output's gradient, for a query in each lane. Summed in the order of
/// small_product: where one weight is 1, the output is that key's value, and the mean is its
/// gradient to the last bit, so that nothing but 0 is left of their difference.
template <class T>
[[gnu::noinline]] void mean_gradients(dim_t width, const T* out, const T* gradient, T* means) {
  constexpr dim_t w = vec<T>::size, step = attention_lanes<T>;
  vec<T> a = vec<T>::zero(), b = a;
  for (dim_t p = 0; p < width; ++p, out += step, gradient += step) {
    a = fma(vec<T>::load(out), vec<T>::load(gradient), a);
    b = fma(vec<T>::load(out + w), vec<T>::load(gradient + w), b);
  }
  a.store(means);
  b.store(means + w);
}

template <class T>
void attend_backward(const attention_head<T>& n, const T* out, dim_t out_row, const T* normalizers,
                     T* dq, dim_t dq_row, T* dk, dim_t dk_row, T* dv, dim_t dv_row, T* dadded) {
  constexpr dim_t w = vec<T>::size, lanes = attention_lanes<T>;
  using rows = attention_rows_of<T>;
  alignas(64) T x[static_cast<std::size_t>(attention_keys * lanes)];
  // Not on the stack as x, which would take 32 KiB with AVX-512.
  T* const d = n.scratch;
  alignas(64) T largest[attention_queries], factors[attention_queries], means[attention_queries];
  if (n.causal || n.queries == 0) {
    // Keys that the first queries do not reach, or none does.
    clear_block(n.keys, n.width, dk, dk_row);
    clear_block(n.keys, n.width, dv, dv_row);
  }
  for (dim_t from = 0; from < n.queries; from += attention_queries) {
    const dim_t count = n.queries - from < attention_queries ? n.queries - from : attention_queries;
    const dim_t padded = (count + lanes - 1) / lanes * lanes;
    const dim_t keys = attended_keys(n, from + count), part = padded * n.width,
                key_part = attention_keys * n.width;
    // Several blocks of keys pass over these queries; or of queries over a block of keys.
    const bool many_keys = keys > attention_keys, many_queries = padded > lanes;
    T *const q = d + attention_keys * lanes, *const g = q + part, *const copies = g + part,
             *const packed = copies + 3 * part;
    for (dim_t i = 0; i < padded; i += lanes) {
      const dim_t queries = count - i < lanes ? count - i : lanes;
      transpose_into<T>(n.width, n.q + (from + i) * n.q_row, n.q_row, queries, n.scale,
                        q + i * n.width, lanes, lanes, false);
      transpose_into<T>(n.width, dq + (from + i) * dq_row, dq_row, queries, T(1), g + i * n.width,
                        lanes, lanes, false);
    }
    const auto q_rows =
                   source_of<T>(many_keys, count, n.width, n.q + from * n.q_row, n.q_row, copies),
               g_rows = source_of<T>(many_keys, count, n.width, dq + from * dq_row, dq_row,
                                     copies + part);
    const rows dq_rows =
        many_keys ? rows{copies + 2 * part, n.width} : rows{dq + from * dq_row, dq_row};
    for (dim_t i = 0; i < padded; i += w) {
      const dim_t at = from + (i < count ? i : 0), left = i < count ? count - i : 0;
      vec<T>::load(normalizers + at, left < w ? left : w).store(largest + i);
      vec<T>::load(normalizers + n.queries + at, left < w ? left : w).store(factors + i);
    }
    for (dim_t i = 0; i < padded; i += lanes) {
      T* const transposed = copies + 2 * part;
      transpose_into<T>(n.width, out + (from + i) * out_row, out_row,
                        count - i < lanes ? count - i : lanes, T(1), transposed, lanes, lanes,
                        false);
      mean_gradients(n.width, transposed, g + i * n.width, means + i);
    }
    for (dim_t k = 0; k < keys; k += attention_keys) {
      const dim_t all = keys - k < attention_keys ? keys - k : attention_keys;
      const auto source =
                     source_of<T>(many_queries, all, n.width, n.k + k * n.k_row, n.k_row, packed),
                 values = values_of<T>(n, many_queries, k, all, packed + key_part);
      const rows dk_to{dk + k * dk_row, dk_row}, dv_to{dv + k * dv_row, dv_row};
      const rows dk_rows = many_queries ? rows{packed + 2 * key_part, n.width} : dk_to,
                 dv_rows = many_queries ? rows{packed + 3 * key_part, n.width} : dv_to;
      // What the operands hold already, from earlier queries or as zeros, is added to.
      const bool kept = n.causal || from > 0;
      if (many_queries && kept) {
        copy_block<T>(all, n.width, dk_to.data, dk_row, dk_rows.data, n.width);
        copy_block<T>(all, n.width, dv_to.data, dv_row, dv_rows.data, n.width);
      }
      for (dim_t i = 0; i < count; i += lanes) {
        const dim_t queries = count - i < lanes ? count - i : lanes;
        const dim_t last = attended_keys(n, from + i + queries) - k;
        if (last <= 0) continue;
        const attention_block<T> at{from + i, queries, k, last < all ? last : all};
        score_block<T>(n, at, q + i * n.width, source.data, source.row, x);
        small_product<T>(at.keys, at.lanes(), n.width, values.data, dim_t{1}, values.row,
                         g + i * n.width, lanes, d, lanes, false);
        weigh_block_backward<T>(n, at, x, d, largest + i, factors + i, means + i,
                                dadded != nullptr ? T(1) : n.scale);
        if (dadded != nullptr) {
          transpose_into<T>(queries, d, lanes, at.keys, T(1), dadded + at.q * n.keys + k, n.keys,
                            at.keys, true);
          for (dim_t j = 0; j < at.keys; ++j) scale_lanes(at.lanes(), n.scale, d + j * lanes);
        }
        const bool adds = kept || i > 0;
        small_product<T>(at.keys, n.width, queries, x, dim_t{1}, lanes, g_rows[i], g_rows.row,
                         dv_rows.data, dv_rows.row, adds);
        small_product<T>(at.keys, n.width, queries, d, dim_t{1}, lanes, q_rows[i], q_rows.row,
                         dk_rows.data, dk_rows.row, adds);
        small_product<T>(queries, n.width, at.keys, d, lanes, dim_t{1}, source.data, source.row,
                         dq_rows[i], dq_rows.row, k > 0);
      }
      if (many_queries) {
        copy_block<T>(all, n.width, dk_rows.data, n.width, dk_to.data, dk_row);
        copy_block<T>(all, n.width, dv_rows.data, n.width, dv_to.data, dv_row);
      }
    }
    if (keys == 0)
      clear_block(count, n.width, dq + from * dq_row, dq_row);
    else if (many_keys)
      copy_block<T>(count, n.width, dq_rows.data, n.width, dq + from * dq_row, dq_row);
  }
}
