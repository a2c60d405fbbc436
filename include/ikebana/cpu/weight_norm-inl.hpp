template <class T>
void scale_channels(dim_t outer, dim_t channels, dim_t inner, const T* v, const T* g,
                    const T* norms, T* w) {
  for (dim_t o = 0; o < outer; ++o)
    for (dim_t c = 0; c < channels; ++c, v += inner, w += inner) {
      const vec<T> factor = vec<T>::broadcast(g[c] / norms[c]);
      map_terms(
          inner, w, IKEBANA_CPU_TERMS { return load_lanes(v + i, lanes) * factor; });
    }
}

template <class T>
void scale_channels_backward(dim_t outer, dim_t channels, dim_t inner, const T* v, const T* g,
                             const T* norms, const T* dw, T* dv, T* dg, bool accumulate) {
  for (dim_t c = 0; c < channels; ++c) {
    const double norm = static_cast<double>(norms[c]);
    double along = 0;
    for (dim_t row = c * inner; row < outer * channels * inner; row += channels * inner)
      along += static_cast<double>(dot_arrays<T>(inner, dw + row, v + row));
    along /= norm;
    const double scale = static_cast<double>(g[c]) / norm;
    dg[c] = static_cast<T>(along) + (accumulate ? dg[c] : T(0));
    const vec<T> factor = vec<T>::broadcast(static_cast<T>(scale));
    const vec<T> back = vec<T>::broadcast(static_cast<T>(-scale * along / norm));
    for (dim_t row = c * inner; row < outer * channels * inner; row += channels * inner)
      map_terms(
          inner, dv + row, IKEBANA_CPU_TERMS {
            const vec<T> d =
                fma(load_lanes(v + row + i, lanes), back, load_lanes(dw + row + i, lanes) * factor);
            return accumulate ? d + load_lanes(dv + row + i, lanes) : d;
          });
  }
}

/// x = x / max(|x|, eps).
template <class T>
IKEBANA_CPU_INLINE void normalize_vector(dim_t n, T eps, T* x) {
  const double norm = __builtin_sqrt(static_cast<double>(dot_arrays<T>(n, x, x)));
  const double least = static_cast<double>(eps);
  const vec<T> factor = vec<T>::broadcast(static_cast<T>(1 / (norm > least ? norm : least)));
  map_terms(
      n, x, IKEBANA_CPU_TERMS { return load_lanes(x + i, lanes) * factor; });
}

/// Row c of W times v.
template <class T>
IKEBANA_CPU_INLINE double channel_product(dim_t outer, dim_t channels, dim_t inner, dim_t c,
                                          const T* w, const T* v) {
  double total = 0;
  for (dim_t o = 0; o < outer; ++o)
    total +=
        static_cast<double>(dot_arrays<T>(inner, w + (o * channels + c) * inner, v + o * inner));
  return total;
}

template <class T>
void iterate_power(dim_t outer, dim_t channels, dim_t inner, const T* w, T eps, T* u, T* v) {
  for (dim_t o = 0; o < outer; ++o)
    map_terms(
        inner, v + o * inner, IKEBANA_CPU_TERMS {
          const T* column = w + o * channels * inner + i;
          vec<T> s0 = vec<T>::zero(), s1 = s0;
          dim_t c = 0;
          for (; c + 2 <= channels; c += 2) {
            s0 = fma(load_lanes(column + c * inner, lanes), vec<T>::broadcast(u[c]), s0);
            s1 = fma(load_lanes(column + (c + 1) * inner, lanes), vec<T>::broadcast(u[c + 1]), s1);
          }
          if (c < channels)
            s0 = fma(load_lanes(column + c * inner, lanes), vec<T>::broadcast(u[c]), s0);
          return s0 + s1;
        });
  normalize_vector<T>(outer * inner, eps, v);
  for (dim_t c = 0; c < channels; ++c)
    u[c] = static_cast<T>(channel_product<T>(outer, channels, inner, c, w, v));
  normalize_vector<T>(channels, eps, u);
}

template <class T>
T bilinear_form(dim_t outer, dim_t channels, dim_t inner, const T* w, const T* u, const T* v) {
  double total = 0;
  for (dim_t c = 0; c < channels; ++c)
    total += static_cast<double>(u[c]) * channel_product<T>(outer, channels, inner, c, w, v);
  return static_cast<T>(total);
}

template <class T>
void divide_by_sigma(dim_t n, const T* w, T sigma, T* y) {
  const vec<T> divisor = vec<T>::broadcast(sigma);
  map_terms(
      n, y, IKEBANA_CPU_TERMS { return load_lanes(w + i, lanes) / divisor; });
}

template <class T>
void divide_by_sigma_backward(dim_t outer, dim_t channels, dim_t inner, const T* w, const T* u,
                              const T* v, T sigma, const T* dnormalized, T* dw, bool accumulate) {
  double along = 0;
  for (dim_t k = 0; k < outer * channels; ++k)
    along += static_cast<double>(dot_arrays<T>(inner, dnormalized + k * inner, w + k * inner));
  const double inverse = 1 / static_cast<double>(sigma);
  const vec<T> factor = vec<T>::broadcast(static_cast<T>(inverse));
  for (dim_t o = 0; o < outer; ++o)
    for (dim_t c = 0; c < channels; ++c) {
      const dim_t row = (o * channels + c) * inner;
      const vec<T> back =
          vec<T>::broadcast(static_cast<T>(-along * inverse * inverse * static_cast<double>(u[c])));
      map_terms(
          inner, dw + row, IKEBANA_CPU_TERMS {
            const vec<T> d = fma(load_lanes(v + o * inner + i, lanes), back,
                                 load_lanes(dnormalized + row + i, lanes) * factor);
            return accumulate ? d + load_lanes(dw + row + i, lanes) : d;
          });
    }
}
