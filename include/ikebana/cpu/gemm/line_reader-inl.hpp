// Reads long rows from beyond the first-level cache by whole cache lines.
// Needs: vec-inl.hpp.

#if IKEBANA_CPU_WIDTH == 64
/// An array that may begin within a cache line (64 bytes, the size of a vector), read by whole
/// lines: a load that crosses two lines costs twice, where they come from beyond L1.
template <class T>
class line_reader {
 public:
  /// Whether it pays for `rows` rows of n elements, ld apart: they are long, begin within lines,
  /// and do not fit in L1.
  static bool pays(const T* p, dim_t rows, dim_t n, dim_t ld) {
    return n >= 16 * vec<T>::size && (offset(p) | (ld & (vec<T>::size - 1))) != 0 &&
           rows * ld * dim_t{sizeof(T)} > detail::caches().first;
  }

  /// Touches no element before `p`.
  IKEBANA_CPU_INLINE explicit line_reader(const T* p) {
    const dim_t o = offset(p);
    line_ = p - o;
    held_ = load_from(line_, o);
    lanes_ = lane_numbers<T>() + bits_of<T>::broadcast(static_cast<typename number<T>::bits>(o));
  }

  /// The next vec<T>::size elements; reads up to as many more.
  IKEBANA_CPU_INLINE vec<T> next() {
    line_ += vec<T>::size;
    const vec<T> line = vec<T>::load(line_), x = pick_lanes(held_, lanes_, line);
    held_ = line;
    return x;
  }

 private:
  static dim_t offset(const T* p) {
    return static_cast<dim_t>(reinterpret_cast<std::uintptr_t>(p) / sizeof(T)) & (vec<T>::size - 1);
  }

  const T* line_;
  vec<T> held_;
  bits_of<T> lanes_;
};
#endif
