#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "ikebana/cpu/contract.hpp"
#include "ikebana/module/broadcast_shapes.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/ops/shapes.hpp"

// Products of the values of a graph. Operands are read in place, also transposed. O(product of all
// extents); no allocation beyond that of a matrix product.
namespace ikebana {

namespace ops {

/// A contraction of two arrays whose dimensions have labels 0, 1, ..; `rank` of them each.
struct labels {
  signed char of[shape::max_rank]{};
  unsigned char rank = 0;

  constexpr bool operator==(const labels&) const = default;
  constexpr void push_back(int label) { of[rank++] = static_cast<signed char>(label); }
  constexpr int find(int label) const {
    for (int i = 0; i < rank; ++i)
      if (of[i] == label) return i;
    return -1;
  }
};

/// The dimensions of c[of c] = sum of a[of a] b[of b], where an extent of 1 is repeated.
/// The strides are null for contiguous arrays.
constexpr cpu::contraction contraction_of(const labels& la, const shape& a, const dim_t* strides_a,
                                          const labels& lb, const shape& b, const dim_t* strides_b,
                                          const labels& lc, const shape& c) {
  const auto step = [](const labels& l, const shape& s, const dim_t* strides, int label) {
    const int at = l.find(label);
    if (at < 0) return dim_t{0};
    dim_t n = 1;
    if (strides != nullptr) return s[static_cast<std::size_t>(at)] == 1 ? dim_t{0} : strides[at];
    for (std::size_t d = static_cast<std::size_t>(at) + 1; d < s.rank(); ++d) n *= s[d];
    return s[static_cast<std::size_t>(at)] == 1 ? dim_t{0} : n;
  };
  cpu::contraction to;
  const auto add = [&](int label, dim_t extent) {
    to.push_back({extent, step(la, a, strides_a, label), step(lb, b, strides_b, label),
                  step(lc, c, nullptr, label)});
  };
  for (int i = 0; i < lc.rank; ++i) {
    const int ia = la.find(lc.of[i]), ib = lb.find(lc.of[i]);
    const dim_t of_c = c[static_cast<std::size_t>(i)];
    // In a gradient, the result may repeat where its factors do not.
    dim_t extent = of_c;
    if (ia >= 0 && extent == 1) extent = a[static_cast<std::size_t>(ia)];
    if (ib >= 0 && extent == 1) extent = b[static_cast<std::size_t>(ib)];
    add(lc.of[i], extent);
  }
  for (int i = 0; i < la.rank; ++i) {
    if (lc.find(la.of[i]) >= 0) continue;
    const int ib = lb.find(la.of[i]);
    dim_t extent = a[static_cast<std::size_t>(i)];
    if (ib >= 0 && extent == 1) extent = b[static_cast<std::size_t>(ib)];
    add(la.of[i], extent);
  }
  for (int i = 0; i < lb.rank; ++i)
    if (lc.find(lb.of[i]) < 0 && la.find(lb.of[i]) < 0)
      add(lb.of[i], b[static_cast<std::size_t>(i)]);
  return to;
}

/// What products share: two operands, whose gradients are products with the other one.
struct labelled_product {
  labels a{}, b{}, c{};

  template <class T>
  void forward(const context<T>& x) const {
    cpu::contract<T>(contraction_of(a, x.input_shape(0), x.input_strides(0), b, x.input_shape(1),
                                    x.input_strides(1), c, x.output_shape()),
                     T{1}, x.input(0), x.input(1), x.output_shape().numel(), x.output());
  }
  template <class T>
  void backward(const context<T>& x) const {
    const shape &sa = x.input_shape(0), &sb = x.input_shape(1), &sc = x.output_shape();
    if (T* const d = x.input_gradient(0); d != nullptr)
      cpu::contract<T>(contraction_of(c, sc, nullptr, b, sb, x.input_strides(1), a, sa), T{1},
                       x.output_gradient(), x.input(1), sa.numel(), d);
    if (T* const d = x.input_gradient(1); d != nullptr)
      cpu::contract<T>(contraction_of(a, sa, x.input_strides(0), c, sc, nullptr, b, sb), T{1},
                       x.input(0), x.output_gradient(), sb.numel(), d);
  }
};

/// torch.matmul; with `ta` or `tb`, an operand's last two dimensions are exchanged.
struct matmul {
  static constexpr std::string_view kind = "matmul";
  static constexpr kept keeps = kept::input;
  static constexpr strided_reader reads_strides() { return strided_reader::product; }

  static constexpr bool is_affine_in_each_input = true;

  bool ta = false, tb = false;

  constexpr bool operator==(const matmul&) const = default;

  constexpr inferred infer(const shape& a, const shape& b) const {
    if (a.rank() == 0 || b.rank() == 0 || (ta && a.rank() < 2) || (tb && b.rank() < 2))
      return diagnostic{"matmul expects at least one dimension each, got {input} and {other}", 0, 0,
                        a, b};
    const dim_t of_a = a[a.rank() - (ta ? 2 : 1)],
                of_b = b[b.rank() - (b.rank() == 1 || tb ? 1 : 2)];
    if (of_a >= 0 && of_b >= 0 && of_a != of_b)
      return diagnostic{
          "matmul expects equal inner extents, got {expected} of {input} and {got} of {other}",
          of_a, of_b, a, b};
    shape out = batch_of(a);
    if (!broadcast_into(out, batch_of(b)))
      return diagnostic{"matmul expects batches that can be broadcast, got {input} and {other}", 0,
                        0, a, b};
    if (a.rank() > 1) out.push_back(a[a.rank() - (ta ? 1 : 2)]);
    if (b.rank() > 1) out.push_back(b[b.rank() - (tb ? 2 : 1)]);
    return out;
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list& out) const {
    return out[0].numel() * in[0][in[0].rank() - (ta ? 2 : 1)];
  }

  void describe(description& d) const {
    if (ta) d.add("transpose_a", true);
    if (tb) d.add("transpose_b", true);
  }

  template <class T>
  void forward(const context<T>& c) const {
    product(c.input_shape(0), c.input_shape(1)).forward(c);
  }
  template <class T>
  void backward(const context<T>& c) const {
    product(c.input_shape(0), c.input_shape(1)).backward(c);
  }

 private:
  static constexpr shape batch_of(const shape& s) {
    shape batch;
    for (std::size_t d = 0; d + 2 < s.rank(); ++d) batch.push_back(s[d]);
    return batch;
  }
  labelled_product product(const shape& a, const shape& b) const {
    constexpr int rows = shape::max_rank, columns = rows + 1, terms = rows + 2;
    labelled_product p;
    const std::size_t batch_a = a.rank() < 2 ? 0 : a.rank() - 2,
                      batch_b = b.rank() < 2 ? 0 : b.rank() - 2,
                      batch = batch_a > batch_b ? batch_a : batch_b;
    for (std::size_t d = 0; d < batch; ++d) {
      const int label = static_cast<int>(d);
      if (d + batch_a >= batch) p.a.push_back(label);
      if (d + batch_b >= batch) p.b.push_back(label);
      p.c.push_back(label);
    }
    if (a.rank() == 1) {
      p.a.push_back(terms);
    } else {
      p.a.push_back(ta ? terms : rows);
      p.a.push_back(ta ? rows : terms);
      p.c.push_back(rows);
    }
    if (b.rank() == 1) {
      p.b.push_back(terms);
    } else {
      p.b.push_back(tb ? columns : terms);
      p.b.push_back(tb ? terms : columns);
      p.c.push_back(columns);
    }
    return p;
  }
};

/// torch.einsum of two operands: labels are letters.
struct einsum {
  static constexpr std::string_view kind = "einsum";
  static constexpr kept keeps = kept::input;
  static constexpr strided_reader reads_strides() { return strided_reader::rows; }

  static constexpr bool is_affine_in_each_input = true;

  labels a{}, b{}, c{};

  constexpr bool operator==(const einsum&) const = default;

  constexpr inferred infer(const shape& sa, const shape& sb) const {
    if (sa.rank() != a.rank)
      return diagnostic{"einsum expects {expected} dimensions of its first operand, got {input}",
                        a.rank, 0, sa};
    if (sb.rank() != b.rank)
      return diagnostic{"einsum expects {expected} dimensions of its second operand, got {input}",
                        b.rank, 0, sb};
    shape out;
    for (int i = 0; i < c.rank; ++i) out.push_back(0);
    for (int label = 0; label < 128; ++label) {
      const int ia = a.find(label), ib = b.find(label), ic = c.find(label);
      const dim_t of_a = ia < 0 ? lazy : sa[static_cast<std::size_t>(ia)],
                  of_b = ib < 0 ? lazy : sb[static_cast<std::size_t>(ib)];
      if (of_a >= 0 && of_b >= 0 && of_a != of_b && of_a != 1 && of_b != 1)
        return diagnostic{
            "einsum expects equal extents of a label, got {expected} of {input} and {got} of "
            "{other}",
            of_a, of_b, sa, sb};
      if (ic >= 0)
        out[static_cast<std::size_t>(ic)] = of_a >= 0 && of_a != 1     ? of_a
                                            : of_b >= 0 && of_b != 1   ? of_b
                                            : of_a == -1 || of_b == -1 ? dynamic
                                                                       : 1;
    }
    return out;
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list& out) const {
    dim_t n = out[0].numel();
    for (int i = 0; i < a.rank; ++i)
      if (c.find(a.of[i]) < 0) n *= in[0][static_cast<std::size_t>(i)];
    return n;
  }

  void describe(description& d) const {
    char text[3 * shape::max_rank + 4]{};
    std::size_t n = 0;
    const auto write = [&](const labels& l) {
      for (int i = 0; i < l.rank; ++i) text[n++] = static_cast<char>(l.of[i]);
    };
    write(a), text[n++] = ',', write(b), text[n++] = '-', text[n++] = '>', write(c);
    d.add("equation", std::string_view{text});
  }

  template <class T>
  void forward(const context<T>& x) const {
    labelled_product{a, b, c}.forward(x);
  }
  template <class T>
  void backward(const context<T>& x) const {
    labelled_product{a, b, c}.backward(x);
  }
};

/// The labels of "bij,bjk->bik", or a mistake.
struct equation {
  labels operands[2]{}, result{};
  int operand_count = 1;
  bool has_arrow = false, is_wrong = false, repeats = false, unknown = false;

  constexpr explicit equation(std::string_view s) {
    for (std::size_t i = 0; i < s.size(); ++i) {
      labels& to = has_arrow ? result : operands[operand_count - 1];
      if (s[i] == ' ') continue;
      if (s[i] == ',' && !has_arrow && operand_count < 2) {
        ++operand_count;
      } else if (s[i] == '-' && i + 1 < s.size() && s[i + 1] == '>' && !has_arrow) {
        has_arrow = true;
        ++i;
      } else if (((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z')) &&
                 to.rank < shape::max_rank) {
        repeats = repeats || to.find(s[i]) >= 0;
        to.push_back(s[i]);
      } else {
        is_wrong = true;
      }
    }
    for (int i = 0; i < result.rank; ++i)
      unknown =
          unknown || (operands[0].find(result.of[i]) < 0 && operands[1].find(result.of[i]) < 0);
  }
};

}  // namespace ops

namespace ops {

/// Of an operand that transpose<-2, -1> makes, its input is read, transposed.
template <symbolic A, symbolic B>
constexpr auto apply_matmul(bool ta, bool tb, const A& a, const B& b) {
  const int of_a = a.trace->without_exchange(a.id), of_b = b.trace->without_exchange(b.id);
  const auto y = apply(matmul{ta != (of_a != a.id), tb != (of_b != b.id)}, a, b);
  y.trace->redirect(y.id, 0, of_a);
  y.trace->redirect(y.id, 1, of_b);
  return y;
}

}  // namespace ops

/// The product of matrices, batches of which are broadcast as in NumPy; of vectors, as in
/// torch.matmul. An operand transpose<-2, -1>(x) is x, read transposed in place.
template <symbolic A, symbolic B>
constexpr auto matmul(const A& a, const B& b) {
  return ops::apply_matmul(false, false, a, b);
}
/// With the last two dimensions of b exchanged, as which b is read in place: a b^T.
template <symbolic A, symbolic B>
constexpr auto matmul_nt(const A& a, const B& b) {
  return ops::apply_matmul(false, true, a, b);
}
/// With the last two dimensions of a exchanged: a^T b.
template <symbolic A, symbolic B>
constexpr auto matmul_tn(const A& a, const B& b) {
  return ops::apply_matmul(true, false, a, b);
}

/// torch.einsum of two operands: `einsum<"bhqd,bhkd->bhqk">(q, k)`. Does not compile if the
/// equation is none, or if it repeats a label within an operand.
template <detail::literal Equation, symbolic A, symbolic B>
constexpr auto einsum(const A& a, const B& b) {
  constexpr ops::equation e{{Equation.data, Equation.size()}};
  constexpr bool is_equation = !e.is_wrong && e.has_arrow && e.operand_count == 2;
  static_assert(is_equation,
                "ikebana: einsum takes an equation such as \"bij,bjk->bik\": letters for the "
                "dimensions of two operands and of the result, at most 8 each");
  static_assert(!is_equation || !e.repeats,
                "ikebana: einsum takes each label once in an operand and the result");
  static_assert(!is_equation || e.repeats || !e.unknown,
                "ikebana: the result of einsum has only labels of its operands");
  return apply(ops::einsum{e.operands[0], e.operands[1], e.result}, a, b);
}

}  // namespace ikebana
