#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/calls/call_arguments.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/model/part.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/model/passes/forward_pass.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/shape_list.hpp"

namespace ikebana {

namespace detail {

/// Writes x, repeated along extents of 1, to y of the shape `out`.
template <class T>
void write_broadcast(const shape& in, const T* x, const shape& out, T* y) {
  dim_t index[shape::max_rank]{}, steps[shape::max_rank]{}, step = 1;
  const std::size_t rank = out.rank(), missing = rank - in.rank();
  for (std::size_t d = in.rank(); d-- > 0;) {
    steps[d + missing] = in[d] == 1 ? 0 : step;
    step *= in[d];
  }
  const dim_t n = out.numel();
  for (dim_t i = 0; i < n; ++i) {
    dim_t at = 0;
    for (std::size_t d = 0; d < rank; ++d) at += index[d] * steps[d];
    y[i] = x[at];
    for (std::size_t d = rank; d-- > 0 && ++index[d] == out[d];) index[d] = 0;
  }
}

/// Runs the leaves forward with the derivatives of their outputs along a direction, in memory of
/// its own.
template <class T>
class jvp_pass {
 public:
  explicit jvp_pass(const execution<T>& of, const program_view& p, dim_t parameters,
                    std::vector<std::byte> buffers, const dim_t* buffer_offsets,
                    const dim_t* offsets)
      : run_{of},
        p_{p},
        memory_(p.n.values),
        tangents_(p.n.values),
        values_(of.values, of.values + p.n.values),
        unused_(static_cast<std::size_t>(parameters)),
        buffers_(std::move(buffers)),
        saved_(p.n.saved) {
    for (std::size_t i = 0; i < p.n.parameters; ++i)
      gradient_table_.push_back(unused_.data() + offsets[i]);
    for (std::size_t b = 0; b < p.n.buffers; ++b)
      buffer_table_.push_back(buffers_.data() + buffer_offsets[b]);
    for (std::size_t s = 0; s < p.n.saved; ++s) {
      const saved_spec& spec = p.saved[s].spec;
      const std::size_t size = spec.element_size == 0 ? sizeof(T) : spec.element_size;
      // With elements of T, so that they are aligned as these.
      saved_[s].resize((static_cast<std::size_t>(spec.extents.numel()) * size) / sizeof(T) + 1);
      saved_table_.push_back(reinterpret_cast<std::byte*>(saved_[s].data()));
    }
    run_.values = values_.data();
    run_.gradients = gradient_table_.data();
    run_.buffers = buffer_table_.data();
    run_.saved = saved_table_.data();
    run_.fused = nullptr;
    run_.watch = nullptr;
    run_.layouts = nullptr;
    run_.accumulate = false;
  }
  jvp_pass(const jvp_pass&) = delete;

  void set_tangent(std::size_t input, const T* direction) {
    tangents_[input].assign(direction, direction + p_.values[input].numel());
  }
  /// Writes zeros for a value that does not depend on the inputs.
  void write_tangent(int value, T* to) const {
    const std::vector<T>& t = tangents_[static_cast<std::size_t>(value)];
    const auto n = static_cast<std::size_t>(p_.values[value].numel());
    if (t.empty())
      std::fill_n(to, n, T{0});
    else
      std::copy_n(t.data(), n, to);
  }

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    const program_node& node = run_.nodes[k_++];
    if (!run_.does_run(node)) return;
    if constexpr (is_view_module<Leaf>()) {
      follow(node, 0);
    } else if constexpr (joins_alternatives<Leaf>) {
      follow(node, static_cast<std::size_t>(run_.partial.taken[node.choice]));
    } else {
      for (std::size_t o = 0; o < node.output_count; ++o) {
        const auto v = static_cast<std::size_t>(node.first_output) + o;
        memory_[v].resize(static_cast<std::size_t>(p_.values[v].numel()) + 1);
        values_[v] = memory_[v].data();
      }
      call c(*this, node);
      leaf.forward(c.context_of());
      if (node.role.stops_gradient || !c.depends()) return;
      for (std::size_t o = 0; o < node.output_count; ++o)
        tangents_[static_cast<std::size_t>(node.first_output) + o].assign(
            static_cast<std::size_t>(p_.values[node.first_output + static_cast<int>(o)].numel()),
            T{0});
      if (is_elementwise(node))
        along_elements(leaf, c);
      else if constexpr (requires { requires Leaf::is_affine_in_each_input; })
        along_inputs(leaf, c);
      else
        by_outputs(leaf, c);
    }
  }

 private:
  /// The arguments of a leaf, with tables of its own.
  struct call {
    jvp_pass& pass;
    const program_node& node;
    std::size_t inputs, outputs;
    shape shapes[2 * max_arity]{};
    int indices[max_arity]{};
    T* values[2 * max_arity]{};
    T* value_gradients[2 * max_arity]{};
    T* edge_gradients[max_arity]{};

    call(jvp_pass& p, const program_node& n)
        : pass{p}, node{n}, inputs{n.input_count}, outputs{n.output_count} {
      for (std::size_t i = 0; i < inputs; ++i) {
        indices[i] = static_cast<int>(i);
        shapes[i] = pass.p_.values[node.inputs[i]];
        values[i] = pass.values_[static_cast<std::size_t>(node.inputs[i])];
      }
      for (std::size_t o = 0; o < outputs; ++o) {
        const auto v = static_cast<std::size_t>(node.first_output) + o;
        shapes[inputs + o] = pass.p_.values[v];
        values[inputs + o] = pass.values_[v];
      }
    }
    context<T> context_of() const {
      context<T> c = pass.run_.context_of(node);
      c.shapes = shapes;
      c.inputs = indices;
      c.first_output = static_cast<int>(inputs);
      c.values = values;
      c.value_gradients = value_gradients;
      c.edge_gradients = edge_gradients;
      return c;
    }
    std::vector<T>& tangent(std::size_t i) const {
      return pass.tangents_[static_cast<std::size_t>(node.inputs[i])];
    }
    std::vector<T>& tangent_of_output(std::size_t o) const {
      return pass.tangents_[static_cast<std::size_t>(node.first_output) + o];
    }
    bool depends() const {
      for (std::size_t i = 0; i < inputs; ++i)
        if (!tangent(i).empty()) return true;
      return false;
    }
  };

  void follow(const program_node& node, std::size_t input) {
    const auto from = static_cast<std::size_t>(node.inputs[input]),
               to = static_cast<std::size_t>(node.first_output);
    values_[to] = values_[from];
    if (!node.role.stops_gradient) tangents_[to] = tangents_[from];
  }

  bool is_elementwise(const program_node& node) const {
    using kinds = cpu::loop_step::kinds;
    return (node.role.step.kind == kinds::map || node.role.step.kind == kinds::function) &&
           node.output_count == 1 && node.saved_count == 0 &&
           run_.leaves[node.leaf].parameter_count == 0;
  }

  /// Backward from ones gives the slopes of each element.
  template <class Leaf>
  void along_elements(const Leaf& leaf, call& c) {
    const shape out = c.shapes[c.inputs];
    const auto n = static_cast<std::size_t>(out.numel());
    std::vector<std::vector<T>> given(c.inputs), slopes(c.inputs);
    std::vector<T> ones(n + 1, T{1}), direction(n + 1);
    c.value_gradients[c.inputs] = ones.data();
    for (std::size_t i = 0; i < c.inputs; ++i) {
      given[i].resize(n + 1);
      slopes[i].resize(n + 1);
      write_broadcast(c.shapes[i], c.values[i], out, given[i].data());
      c.edge_gradients[i] = c.tangent(i).empty() ? nullptr : slopes[i].data();
    }
    const auto before = std::vector<shape>(c.shapes, c.shapes + c.inputs);
    for (std::size_t i = 0; i < c.inputs; ++i) {
      c.shapes[i] = out;
      c.values[i] = given[i].data();
    }
    leaf.backward(c.context_of());
    std::vector<T>& to = c.tangent_of_output(0);
    for (std::size_t i = 0; i < c.inputs; ++i) {
      if (c.edge_gradients[i] == nullptr) continue;
      write_broadcast(before[i], c.tangent(i).data(), out, direction.data());
      for (std::size_t j = 0; j < n; ++j) to[j] += slopes[i][j] * direction[j];
    }
  }

  /// What is affine in each input: the sum over the inputs of f(.., v, ..) - f(.., 0, ..).
  template <class Leaf>
  void along_inputs(const Leaf& leaf, call& c) {
    std::vector<T>& to = c.tangent_of_output(0);
    std::vector<T> out(to.size() + 1), zero;
    c.values[c.inputs] = out.data();
    for (std::size_t i = 0; i < c.inputs; ++i) {
      if (c.tangent(i).empty()) continue;
      T* const own = c.values[i];
      zero.assign(c.tangent(i).size(), T{0});
      for (const bool positive : {true, false}) {
        c.values[i] = positive ? c.tangent(i).data() : zero.data();
        leaf.forward(c.context_of());
        for (std::size_t j = 0; j < to.size(); ++j) to[j] += positive ? out[j] : -out[j];
      }
      c.values[i] = own;
    }
  }

  /// Any other leaf: one backward for each element of its outputs.
  template <class Leaf>
  void by_outputs(const Leaf& leaf, call& c) {
    std::vector<std::vector<T>> gradients(c.inputs), above(c.outputs);
    for (std::size_t i = 0; i < c.inputs; ++i) {
      gradients[i].resize(c.tangent(i).size() + 1);
      c.edge_gradients[i] = c.tangent(i).empty() ? nullptr : gradients[i].data();
    }
    for (std::size_t o = 0; o < c.outputs; ++o) above[o].resize(c.tangent_of_output(o).size() + 1);
    const auto first = static_cast<std::size_t>(c.node.first_saved);
    const std::vector<std::vector<T>> kept(
        saved_.begin() + static_cast<std::ptrdiff_t>(first),
        saved_.begin() + static_cast<std::ptrdiff_t>(first + c.node.saved_count));
    for (std::size_t o = 0; o < c.outputs; ++o)
      for (std::size_t j = 0; j < c.tangent_of_output(o).size(); ++j) {
        // A backward may write to the gradients of outputs, and to what forward saved.
        for (std::size_t i = 0; i < c.outputs; ++i) {
          std::fill(above[i].begin(), above[i].end(), T{0});
          c.value_gradients[c.inputs + i] = above[i].data();
        }
        above[o][j] = T{1};
        for (std::size_t s = 0; s < kept.size(); ++s)
          std::copy(kept[s].begin(), kept[s].end(), saved_[first + s].begin());
        leaf.backward(c.context_of());
        double sum = 0;
        for (std::size_t i = 0; i < c.inputs; ++i)
          for (std::size_t n = 0; n < c.tangent(i).size(); ++n)
            sum += static_cast<double>(gradients[i][n]) * static_cast<double>(c.tangent(i)[n]);
        c.tangent_of_output(o)[j] = static_cast<T>(sum);
      }
  }

  execution<T> run_;
  program_view p_;
  std::vector<std::vector<T>> memory_, tangents_;  ///< By value.
  std::vector<T*> values_;
  std::vector<T> unused_;  ///< Gradients of parameters.
  std::vector<T*> gradient_table_;
  std::vector<std::byte> buffers_;
  std::vector<std::byte*> buffer_table_;
  std::vector<std::vector<T>> saved_;
  std::vector<std::byte*> saved_table_;
  int k_ = 0;
};

inline constexpr char direction_shape[] =
    "jvp takes a direction of the shape of its input, {input}, got {other}";

template <class Model, std::size_t... O>
auto tangents_of(Model& m, const jvp_pass<typename Model::value_type>& pass,
                 std::index_sequence<O...>) {
  using T = typename Model::value_type;
  const auto& p = part_access::engine(m).tables().lowered;
  const auto tangent = [&]<class View>(const View& y, std::size_t o) {
    tensor<T, View::static_shape> v(y.extents());
    pass.write_tangent(p.outputs[o], v.data());
    return v;
  };
  if constexpr (sizeof...(O) == 1)
    return std::pair(tensor{m.output()}, tangent(m.output(), 0));
  else
    return std::pair(std::tuple(tensor{m.template output<O>()}...),
                     std::tuple(tangent(m.template output<O>(), O)...));
}

}  // namespace detail

/// Forward mode: the output of a model for the inputs x and its derivative along the direction v,
/// J v, which has the output's shape: torch.func.jvp. `const auto [y, dy] = jvp(model, x, v)`; of
/// several inputs `jvp(model, inputs(a, b), inputs(va, vb))`, with a direction for each input that
/// is numbers; of several outputs, tuples. It is that of one forward, which it runs, with its
/// random numbers and choices; parameters are constant. Element-wise leaves and products cost about
/// two forwards, other leaves a backward for each element of their outputs. Throws shape_error if a
/// direction has not the shape of its input, or one is missing, before the forward. Allocates.
template <class Model, class... X, class... V>
requires(Model::template takes<X...>) auto jvp(Model& model, const input_pack<X...>& x,
                                               const input_pack<V...>& v) {
  using T = typename Model::value_type;
  static_assert(
      std::is_same_v<
          typename std::remove_cvref_t<decltype(detail::part_access::engine(model))>::element_type,
          T>,
      "ikebana: jvp is for models of float or double");
  auto& engine = detail::part_access::engine(model);
  auto& t = engine.tables();
  // Checked before the forward, which may change running statistics.
  const shape_list given = std::apply(
      [](const auto&... each) { return detail::call_arguments<Model>::shapes(each...); }, x.items);
  std::array<const T*, Model::input_count + 1> directions{};
  std::size_t input = 0;
  const auto skip = [&] {
    while (input < t.inputs && t.lowered.kinds[input] != element_kind::real) ++input;
  };
  const auto number = [] {
    return shape_error("jvp takes a direction for each input that is numbers, and no other");
  };
  const auto set = [&](const auto& direction) {
    skip();
    if (input == t.inputs) throw_error(number());
    if (!(direction.extents() == given[input]))
      throw_error(shape_error(
          diagnostic{detail::direction_shape, 0, 0, given[input], direction.extents()}));
    directions[input++] = direction.data();
  };
  std::apply([&](const auto&... each) { (set(each), ...); }, v.items);
  skip();
  if (input < t.inputs) throw_error(number());

  std::apply([&](const auto&... each) { model(each...); }, x.items);
  detail::jvp_pass<T> pass(
      engine.execution_tables(false), t.current, engine.network.memory.parameters.size(),
      {engine.network.memory.buffers.data(),
       engine.network.memory.buffers.data() + engine.network.memory.buffers.size()},
      t.buffer_offsets, t.offsets);
  for (std::size_t i = 0; i < t.inputs; ++i)
    if (t.lowered.kinds[i] == element_kind::real) pass.set_tangent(i, directions[i]);
  for_each_leaf(engine.network.module, pass);
  return detail::tangents_of(model, pass, std::make_index_sequence<Model::output_count>{});
}
template <class Model, tensor_like X, tensor_like V>
requires(Model::template takes<X>&& compatible(X::static_shape,
                                               V::static_shape)) auto jvp(Model& model, const X& x,
                                                                          const V& v) {
  return jvp(model, inputs(x), inputs(v));
}

namespace detail {

template <class Model, class X, class V>
constexpr diagnostic check_jvp() {
  // clang 14 asks before it looks at the constraints.
  if constexpr (tensor_like<X> && tensor_like<V>) {
    constexpr diagnostic call = Model::template check_call<X>();
    if (!call.ok()) return call;
    return {direction_shape, 0, 0, X::static_shape, V::static_shape};
  } else {
    return {};
  }
}

namespace misuse {
IKEBANA_MISUSE(jvp_takes_a_model,
               "jvp takes an initialized model, an input and a direction of its shape: jvp(model, "
               "x, v)");
}  // namespace misuse

}  // namespace detail

template <class Model, tensor_like X, tensor_like V>
requires(initialized_model<Model> &&
         !(Model::template takes<X> &&
           compatible(X::static_shape, V::static_shape))) auto jvp(Model&, const X&, const V&)
    -> decltype(detail::refuse<detail::check_jvp<Model, X, V>>());
template <class Model, class... X>
requires(!initialized_model<Model>) auto jvp(const Model&, const X&...)
    -> decltype(detail::refuse_for<detail::misuse::jvp_takes_a_model, Model>());

}  // namespace ikebana
