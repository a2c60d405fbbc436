#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/layer_norm.hpp"
#include "ikebana/cpu/loop_step.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/strided.hpp"
#include "ikebana/cpu/tensor_ops.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// Several element-wise operations and reductions of rows in one pass over memory: blocks that stay
/// in the first-level cache go through all of them, each with its vectorised kernel. The loop is
/// data, so that none is compiled for each formula.
namespace ikebana::cpu {

enum class loop_code : unsigned char {
  map,                ///< y = f(a, b, c).
  function,           ///< y = activation f(a).
  load,               ///< y = the value a, repeated by a map.
  fill,               ///< y = a number, or the one element of the value a.
  expand,             ///< y = each number of the rows a, times `number`, for the whole row.
  fold,               ///< y = the reduction f of each row of a; b: what backward needs of it.
  map_gradient,       ///< y = the gradient of operand `by` of f(a, b, c); d: its result, g: of it.
  function_gradient,  ///< Likewise, of an activation; a: what its backward reads.
  fold_gradient,      ///< y = the gradient of the elements a; b, g: expanded.
  share,     ///< y = g of each row divided by the number of extremes b of a, or by the norm b.
  add,       ///< y = a + b.
  copy,      ///< y = a.
  sum_rows,  ///< y = the sum of each row of a.
  scatter,   ///< The elements of a are added to y, by a map.
  /// y = rows a less their means, b, by the roots of their variances, 1 / c; times d, plus e, of
  /// which `map` says where they are.
  normalise,
  normalise_gradient  ///< The gradient of a, g being that of the result; added to e and h: of d, e.
};

/// An array: a block of the loop's own, or memory of the network, with an element for each element
/// of the loop or for each row.
struct loop_operand {
  enum class kinds : unsigned char { none, block, value, gradient, edge, saved };

  kinds kind = kinds::none;
  bool of_rows = false;
  int id = -1;

  constexpr bool exists() const { return kind != kinds::none; }
  constexpr bool operator==(const loop_operand&) const = default;
};

struct loop_instruction {
  loop_code code = loop_code::map;
  unsigned char f = 0;
  unsigned char by = 0;
  bool of_rows = false;  ///< Computes an element for each row.
  int map = -1;
  loop_operand a{}, b{}, c{}, d{}, g{}, y{}, e{}, h{};
  double number = 1;  ///< The exponent, correction or factor.
};

/// A forward or a backward: what runs once, and for each row before, within and after its elements.
/// A block holds whole rows, and all is within, or a part of a row.
struct loop_program {
  const loop_instruction* code = nullptr;
  int once = 0, before = 0, within = 0, after = 0;
  dim_t rows = 1, length = 0;
  dim_t block_rows = 0;   ///< 0 if a block is a part of a row.
  dim_t block = 0;        ///< Elements of a block.
  dim_t stride = 0;       ///< From a block to the next.
  int blocks = 0;         ///< Their number; blocks for rows follow.
  bool in_order = false;  ///< Different rows add to the same memory.
  const strided_map* maps = nullptr;
};

/// The network's memory, by value, edge and saved tensor.
template <class T>
struct loop_memory {
  T* const* values = nullptr;
  T* const* gradients = nullptr;
  T* const* edges = nullptr;
  std::byte* const* saved = nullptr;
  /// Forward and backward of activations: f, n, x (or what backward reads), dy, y.
  void (*activate)(activation f, dim_t n, const T* x, T* y) = nullptr;
  void (*activate_backward)(activation f, dim_t n, const T* x, const T* dy, T* dx) = nullptr;
};

/// Of the packing buffer of each thread that takes part: no product runs within a loop, and a block
/// is too small for the backward of a norm to keep sums of several threads there.
inline constexpr dim_t loop_scratch_bytes = 256 * 1024;
static_assert(loop_scratch_bytes <= static_cast<dim_t>(detail::packed_b_bytes) &&
              loop_scratch_bytes <= elements_for_thread * dim_t{sizeof(float)});
/// The number of reductions of rows that are not in one block.
inline constexpr int most_loop_folds = 8;

// The activations that a loop may have.
#define IKEBANA_LOOP_ACTIVATIONS(DO) DO(relu) DO(tanh) DO(sigmoid) DO(silu) DO(gelu) DO(gelu_tanh)

/// What a loop calls for an activation of `Of`, bits of one_activation.
template <class T, unsigned Of>
void run_loop_activation(activation f, dim_t n, const T* x, T* y) {
#define IKEBANA_RUN(name)                                     \
  if constexpr ((Of & one_activation(activation::name)) != 0) \
    if (f == activation::name) return name##_forward(n, x, y);
  IKEBANA_LOOP_ACTIVATIONS(IKEBANA_RUN)
#undef IKEBANA_RUN
}
template <class T, unsigned Of>
void run_loop_activation_backward(activation f, dim_t n, const T* x, const T* dy, T* dx) {
#define IKEBANA_RUN(name)                                     \
  if constexpr ((Of & one_activation(activation::name)) != 0) \
    if (f == activation::name) return name##_backward(n, x, dy, dx);
  IKEBANA_LOOP_ACTIVATIONS(IKEBANA_RUN)
#undef IKEBANA_RUN
}
#undef IKEBANA_LOOP_ACTIVATIONS

/// How often an array is repeated for each of its elements.
constexpr dim_t inner_of(const strided_map& m) {
  return m.strides[m.rank - 1] == 0 ? m.extents[m.rank - 1] : 1;
}

namespace detail {

/// Runs a loop over a range of rows, or over a part of the only row.
template <class T>
class loop_runner {
 public:
  loop_runner(const loop_program& p, const loop_memory<T>& memory, T* scratch)
      : p_{p}, memory_{memory}, scratch_{scratch} {}

  void run_rows(dim_t first, dim_t last) {
    begin();
    const loop_instruction* const within = p_.code + p_.once + p_.before;
    if (p_.block_rows > 0) {
      for (row_ = first; row_ < last; row_ += p_.block_rows) {
        rows_ = last - row_ < p_.block_rows ? last - row_ : p_.block_rows;
        at_ = row_ * p_.length;
        n_ = rows_ * p_.length;
        for (int i = 0; i < p_.within; ++i) run(within[i]);
      }
      return;
    }
    rows_ = 1;
    for (row_ = first; row_ < last; ++row_) {
      n_ = 0;
      for (int i = -p_.before; i < 0; ++i) run(within[i]);
      start_folds(within);
      run_part(row_ * p_.length, (row_ + 1) * p_.length);
      end_folds(within);
      for (int i = 0; i < p_.after; ++i) run(within[p_.within + i]);
    }
  }
  void run_elements(dim_t first, dim_t last) {
    begin();
    rows_ = 1;
    run_part(first, last);
  }

 private:
  void begin() {
    n_ = p_.block;
    rows_ = p_.block_rows > 0 ? p_.block_rows : 1;
    for (int i = 0; i < p_.once; ++i) run(p_.code[i]);
  }
  void run_part(dim_t first, dim_t last) {
    const loop_instruction* const within = p_.code + p_.once + p_.before;
    for (at_ = first; at_ < last; at_ += p_.block) {
      n_ = last - at_ < p_.block ? last - at_ : p_.block;
      for (int i = 0; i < p_.within; ++i) run(within[i]);
    }
  }

  T* base(const loop_operand& o) const {
    switch (o.kind) {
      case loop_operand::kinds::value:
        return memory_.values[o.id];
      case loop_operand::kinds::gradient:
        return memory_.gradients[o.id];
      case loop_operand::kinds::edge:
        return memory_.edges[o.id];
      case loop_operand::kinds::saved:
        return reinterpret_cast<T*>(memory_.saved[o.id]);
      default:
        return nullptr;
    }
  }
  T* find(const loop_operand& o) const {
    if (o.kind == loop_operand::kinds::none) return nullptr;
    if (o.kind == loop_operand::kinds::block)
      return o.of_rows ? scratch_ + p_.blocks * p_.stride + o.id * block_rows()
                       : scratch_ + o.id * p_.stride;
    T* const from = base(o);
    // A gradient that nobody wants goes to the first block, which the planner reserves.
    if (from == nullptr) return scratch_;
    return from + (o.of_rows ? row_ : at_);
  }
  dim_t block_rows() const { return p_.block_rows > 0 ? p_.block_rows : 1; }
  dim_t row_size() const { return p_.block_rows > 0 ? p_.length : n_; }

  void run(const loop_instruction& i) {
    const dim_t n = i.of_rows ? rows_ : n_;
    T* const y = find(i.y);
    switch (i.code) {
      case loop_code::map:
        return tensor_op_forward<T>(static_cast<tensor_op>(i.f), n, find(i.a), find(i.b), find(i.c),
                                    y);
      case loop_code::function:
        return memory_.activate(static_cast<activation>(i.f), n, find(i.a), y);
      case loop_code::load:
        return read_strided<T>(p_.maps[i.map], base(i.a), i.of_rows ? row_ : at_, n, y);
      case loop_code::fill:
        return cpu::fill<T>(n, y, i.a.exists() ? base(i.a)[0] : static_cast<T>(i.number));
      case loop_code::expand: {
        const T* const a = find(i.a);
        const dim_t size = row_size();
        for (dim_t r = 0; r < rows_; ++r)
          cpu::fill<T>(size, y + r * size, a[r] * static_cast<T>(i.number));
        return;
      }
      case loop_code::fold:
        return p_.block_rows > 0 ? fold_rows(i, y) : continue_fold(i);
      case loop_code::map_gradient:
        return tensor_op_backward<T>(static_cast<tensor_op>(i.f), i.by, n, find(i.a), find(i.b),
                                     find(i.c), find(i.d), find(i.g), y);
      case loop_code::function_gradient:
        return memory_.activate_backward(static_cast<activation>(i.f), n, find(i.a), find(i.g), y);
      case loop_code::fold_gradient:
        return fold_backward<T>(static_cast<fold_op>(i.f), n, find(i.a), find(i.b), find(i.g), T{},
                                static_cast<T>(i.number), y);
      case loop_code::share:
        return share(i, y);
      case loop_code::add:
        return cpu::add<T>(n, find(i.a), find(i.b), y);
      case loop_code::copy:
        std::memcpy(y, find(i.a), static_cast<std::size_t>(n) * sizeof(T));
        return;
      case loop_code::sum_rows: {
        const T* const a = find(i.a);
        const dim_t size = row_size();
        for (dim_t r = 0; r < rows_; ++r)
          y[r] = fold_row<T>(fold_op::sum, size, a + r * size, T{}, T{}, T{});
        return;
      }
      case loop_code::scatter:
        return scatter(p_.maps[i.map], base(i.y), i.of_rows ? row_ : at_, n, find(i.a));
      case loop_code::normalise:
      case loop_code::normalise_gradient:
        return normalise(i, y);
    }
  }

  void normalise(const loop_instruction& i, T* y) const {
    const T *const x = find(i.a), *const g = find(i.g), *const scale = base(i.d);
    T *const means = find(i.b), *const roots = find(i.c), *const e = base(i.e),
             *const h = base(i.h);
    const auto eps = static_cast<T>(i.number);
    const bool forward = i.code == loop_code::normalise;
    const dim_t n = p_.length, inner = i.map < 0 ? 1 : inner_of(p_.maps[i.map]);
    if (inner == 1) {
      if (forward) return layer_norm_forward<T>(rows_, n, 1, x, scale, e, eps, y, means, roots);
      return layer_norm_backward<T>(rows_, n, 1, x, g, scale, means, roots, y, e, h, true);
    }
    // A row has some of the channels.
    const strided_map& m = p_.maps[i.map];
    const dim_t of_row = n / inner, parts = m.extents[m.rank - 2] / of_row;
    const bool is_whole = row_ % parts == 0 && rows_ % parts == 0;
    const dim_t groups = is_whole ? parts : 1, channels = of_row * groups;
    for (dim_t r = 0; r < rows_; r += groups) {
      const dim_t at = r * n, c = (row_ + r) % parts * of_row;
      const auto from = [c](T* p) { return p == nullptr ? p : p + c; };
      const dim_t batch = is_whole ? rows_ / parts : 1;
      if (forward)
        group_norm_forward<T>(batch, channels, inner, groups, x + at, scale + c, from(e), eps,
                              y + at, means + r, roots + r);
      else
        group_norm_backward<T>(batch, channels, inner, groups, x + at, g + at, scale + c, means + r,
                               roots + r, y + at, from(e), from(h), true);
      if (is_whole) return;
    }
  }

  void fold_rows(const loop_instruction& i, T* y) const {
    const T* a = find(i.a);
    T* const s = find(i.b);
    const dim_t n = p_.length;
    constexpr T infinity = std::numeric_limits<T>::infinity();
    for (dim_t r = 0; r < rows_; ++r, a += n) {
      const auto of = [a, n](fold_op f, T m, T start) {
        return fold_row<T>(f, n, a, m, T{}, start);
      };
      switch (static_cast<reduction_op>(i.f)) {
        case reduction_op::sum:
          y[r] = of(fold_op::sum, T{}, T{});
          break;
        case reduction_op::mean:
          y[r] = of(fold_op::sum, T{}, T{}) / static_cast<T>(n);
          break;
        case reduction_op::var:
          s[r] = of(fold_op::sum, T{}, T{}) / static_cast<T>(n);
          y[r] = of(fold_op::deviation, s[r], T{}) /
                 std::fmax(static_cast<T>(n) - static_cast<T>(i.number), T{});
          break;
        case reduction_op::max:
          y[r] = of(fold_op::max, T{}, -infinity);
          break;
        case reduction_op::min:
          y[r] = of(fold_op::min, T{}, infinity);
          break;
        case reduction_op::logsumexp: {
          T m = of(fold_op::max, T{}, -infinity);
          if (std::isinf(m)) m = T{};
          y[r] = std::log(of(fold_op::exp, m, T{})) + m;
          break;
        }
        case reduction_op::norm:
          y[r] = std::sqrt(of(fold_op::square, T{}, T{}));
          break;
      }
    }
  }

  // Sums of blocks are added in double.
  void start_folds(const loop_instruction* within) {
    for (int i = 0, f = 0; i < p_.within; ++i)
      if (within[i].code == loop_code::fold) folds_[f++] = start_of(within[i]);
  }
  static double start_of(const loop_instruction& i) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const auto f = static_cast<reduction_op>(i.f);
    return f == reduction_op::max ? -infinity : f == reduction_op::min ? infinity : 0;
  }
  void continue_fold(const loop_instruction& i) {
    double& so_far = folds_[i.by];
    const auto f = static_cast<reduction_op>(i.f);
    const T* const a = find(i.a);
    if (f == reduction_op::max || f == reduction_op::min)
      so_far = static_cast<double>(fold_row<T>(f == reduction_op::max ? fold_op::max : fold_op::min,
                                               n_, a, T{}, T{}, static_cast<T>(so_far)));
    else
      so_far += static_cast<double>(fold_row<T>(fold_op::sum, n_, a, T{}, T{}, T{}));
  }
  void end_folds(const loop_instruction* within) {
    for (int i = 0, f = 0; i < p_.within; ++i)
      if (within[i].code == loop_code::fold) {
        const bool is_mean = static_cast<reduction_op>(within[i].f) == reduction_op::mean;
        const double size = is_mean ? static_cast<double>(p_.length) : 1;
        *find(within[i].y) = static_cast<T>(folds_[f++] / size);
      }
  }

  void share(const loop_instruction& i, T* y) const {
    const T *a = find(i.a), *b = find(i.b), *g = find(i.g);
    if (static_cast<reduction_op>(i.f) == reduction_op::norm) {
      for (dim_t r = 0; r < rows_; ++r) y[r] = b[r] == 0 ? T{} : g[r] / b[r];
      return;
    }
    for (dim_t r = 0; r < rows_; ++r, a += p_.length)
      y[r] = g[r] / fold_row<T>(fold_op::equal, p_.length, a, b[r], T{}, T{});
  }

  static void scatter(const strided_map& m, T* to, dim_t first, dim_t n, const T* from) {
    if (to == nullptr) return;
    for_each_run(m, first, n, [=](dim_t at, dim_t stride, dim_t i, dim_t count) {
      if (stride == 0)
        to[at] += fold_row<T>(fold_op::sum, count, from + i, T{}, T{}, T{});
      else if (stride == 1)
        cpu::add<T>(count, to + at, from + i, to + at);
      else
        for (dim_t k = 0; k < count; ++k) to[at + k * stride] += from[i + k];
    });
  }

  const loop_program& p_;
  const loop_memory<T>& memory_;
  T* scratch_;
  dim_t row_ = 0, rows_ = 1;  ///< The rows of the block.
  dim_t at_ = 0, n_ = 0;      ///< Its elements.
  double folds_[most_loop_folds]{};
};

}  // namespace detail

/// Runs the loop. Results do not depend on the number of threads. Does not throw; allocates only a
/// thread's scratch, at its first use.
template <class T>
void run_fused_loop(const loop_program& p, const loop_memory<T>& memory) {
  const auto with_scratch = [&p, &memory](auto f) {
    detail::loop_runner<T> runner(p, memory, detail::thread_scratch<T>());
    f(runner);
  };
  const auto rows = [&](dim_t first, dim_t last) {
    with_scratch([=](auto& runner) { runner.run_rows(first, last); });
  };
  if (p.in_order) return rows(0, p.rows);
  if (p.rows > 1) {
    const dim_t grain = detail::rows_for_thread(p.length * (1 + p.within / 4));
    const dim_t whole = p.block_rows > 0 ? p.block_rows : 1;
    return parallel_for(0, p.rows, (grain + whole - 1) / whole * whole, rows);
  }
  parallel_for(0, p.length, (elements_for_thread / p.block + 1) * p.block,
               [&](dim_t first, dim_t last) {
                 with_scratch([=](auto& runner) { runner.run_elements(first, last); });
               });
}

IKEBANA_CPU_KERNEL(run_fused_loop)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
