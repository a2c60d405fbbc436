#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ikebana/cpu/dense_layer.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/fusion.hpp"
#include "ikebana/model/gradient_presence.hpp"
#include "ikebana/model/hooked_forward.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// Whether a leaf gives what one of its inputs is, the one that was chosen.
template <class Leaf>
inline constexpr bool joins_alternatives = requires {
  Leaf::joins_alternatives;
};

/// Whether a leaf can run those of its kind that follow it; numbers as they are, not rounded.
template <class E, class Leaf>
inline constexpr bool runs_layers = std::is_floating_point_v<E>&& requires {
  requires Leaf::is_layer;
};

/// What a pass needs in which not every leaf runs; null where every leaf does.
template <class T>
struct partial_tables {
  const bool* runs = nullptr;         ///< By arm.
  const int* taken = nullptr;         ///< By choice.
  bool* written = nullptr;            ///< By value: there is a gradient.
  const bool* edge_needed = nullptr;  ///< By edge.
  T* const* scratch = nullptr;        ///< By edge, for those that may add to a gradient.
  gradient_presence* presence = nullptr;
  const int* places = nullptr;  ///< By leaf: its first parameter among those of the flat array.
  T* flat_gradients = nullptr;
};

/// Everything that a pass over the leaves needs, as plain tables: no type of a network in it.
template <class T>
struct execution {
  const program_node* nodes = nullptr;
  const program_leaf* leaves = nullptr;
  const shape* shapes = nullptr;
  T** values = nullptr;
  T** value_gradients = nullptr;
  T** edge_gradients = nullptr;
  T** edge_sums =
      nullptr;  ///< By edge: the gradient to which the edge's contribution is added; null for none.
  const bool* runs_backward = nullptr;
  const bool* first_call = nullptr;  ///< By node: no earlier node runs the same leaf.
  const bool* last_call = nullptr;   ///< By node: no later node runs the same leaf.
  const bool* unwritten = nullptr;   ///< By value: nothing writes its gradient, so it is zero.
  T* const* parameters = nullptr;
  T* const* gradients = nullptr;
  const dim_t* completed = nullptr;
  std::byte* const* buffers = nullptr;
  std::byte** saved = nullptr;
  seed model_seed{};
  std::uint32_t step = 0;
  std::uint32_t stream = 0;
  bool training = true;
  bool accumulate = false;
  std::uint64_t stamp = 0;            ///< Of the parameters; 0 where they may change at any time.
  const fused_call* fused = nullptr;  ///< By node; null where each leaf does its own work.
  const bool* full_precision = nullptr;   ///< By leaf; null where all are alike.
  cpu::dense_chain<T>* chains = nullptr;  ///< By node, for those that begin one.
  partial_tables<T> partial{};

  bool does_run(const program_node& node) const { return node.arm < 0 || partial.runs[node.arm]; }

  bool is_full(const program_node& node) const {
    return full_precision != nullptr && full_precision[node.leaf];
  }

  void take_norm(const program_node& norm, context<T>& c) const;

  context<T> context_of(const program_node& node) const {
    const program_leaf& leaf = leaves[node.leaf];
    // Every member in its place: nothing is filled with zeros first, which would take longer.
    return {.shapes = shapes,
            .inputs = node.inputs,
            .arity = node.input_count,
            .first_output = node.first_output,
            .values = values,
            .value_gradients = value_gradients,
            .edge_gradients = edge_gradients + node.first_edge,
            .parameters = parameters + leaf.first_parameter,
            .gradients = gradients + leaf.first_parameter,
            .buffers = buffers + leaf.first_buffer,
            .saved_data = saved + node.first_saved,
            .is_training = training,
            .stamp = stamp,
            .stream = random_stream{model_seed, leaf.path_hash, step, stream}};
  }

  /// The same with what the call takes over from others.
  context<T> forward_context_of(const program_node& node) const {
    context<T> c = context_of(node);
    if (fused == nullptr) return c;
    const fused_call& f = fused[&node - nodes];
    if (f.adds) c.added = values[f.added];
    c.applied = f.function;
    if (f.gives_other) c.other_output = values[f.output];
    if (f.normalises) take_norm(nodes[f.norm], c);
    return c;
  }
  context<T> backward_context_of(const program_node& node) const {
    context<T> c = context_of(node);
    if (fused != nullptr) c.slope = fused[&node - nodes].slope;
    return c;
  }
};

// (a channel's scale) x + (its shift) = (x - mean) / sqrt(variance + eps) weight + bias.
template <class T>
void execution<T>::take_norm(const program_node& norm, context<T>& c) const {
  const program_leaf& leaf = leaves[norm.leaf];
  T* const* const affine = parameters + leaf.first_parameter;
  const auto buffer = [&](int i) {
    return reinterpret_cast<const T*>(buffers[leaf.first_buffer + i]);
  };
  c.scale = reinterpret_cast<T*>(saved[norm.first_saved]);
  c.shift = reinterpret_cast<T*>(saved[norm.first_saved + 1]);
  const T eps = static_cast<T>(norm.role.eps);
  for (dim_t i = 0; i < shapes[norm.inputs[0]][1]; ++i) {
    const T weight = norm.role.is_affine ? affine[0][i] : T{1};
    c.scale[i] = weight / std::sqrt(buffer(1)[i] + eps);
    c.shift[i] = (norm.role.is_affine ? affine[1][i] : T{0}) - buffer(0)[i] * c.scale[i];
  }
}

/// What happens around every call of a leaf, for whoever rounds what goes in and out. k is the
/// node. A pass without one knows nothing of it.
template <class T>
class leaf_boundary {
 public:
  virtual void begin_forward(const execution<T>&) = 0;
  virtual void before_forward(const execution<T>&, int k) = 0;
  virtual void after_forward(const execution<T>&, int k) = 0;
  virtual void end_forward(const execution<T>&) = 0;

 protected:
  ~leaf_boundary() = default;
};

// The calls for a leaf are not inlined: equal leaves share their code, and a pass over a long
// network stays a short function.

struct no_boundary {};

/// Visits the leaves in order and runs each forward, or, where Partial, those of the alternatives
/// that are taken. E is a model_element.
template <class E, class Boundary = no_boundary, bool Partial = false>
struct forward_pass {
  const execution<element_of<E>>& run;
  int k = 0;
  Boundary boundary{};  ///< Or a leaf_boundary<T>*, which may be null.

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    const program_node& node = run.nodes[k++];
    if constexpr (Partial)
      if (!run.does_run(node)) return;
    if (run.fused != nullptr && run.fused[k - 1].forward_is_done) return;
    if constexpr (!std::is_same_v<Boundary, no_boundary>)
      if (boundary != nullptr) boundary->before_forward(run, k - 1);
    if constexpr (is_view_module<Leaf>())
      run.values[node.first_output] = run.values[node.inputs[0]];
    else if constexpr (joins_alternatives<Leaf>)
      run.values[node.first_output] = run.values[node.inputs[run.partial.taken[node.choice]]];
    else if (!run_layers<Leaf>(node))
      leaf.forward(element_traits<E>::given(run.forward_context_of(node), run.is_full(node)));
    if constexpr (!std::is_same_v<Boundary, no_boundary>)
      if (boundary != nullptr) boundary->after_forward(run, k - 1);
  }

 private:
  /// Whether it was run in one call with others.
  template <class Leaf>
  [[gnu::always_inline]] bool run_layers([[maybe_unused]] const program_node& node) const {
    if constexpr (runs_layers<E, Leaf>) {
      if (run.fused == nullptr || run.fused[k - 1].layers == 0) return false;
      if (run.fused[k - 1].layers > 0)
        Leaf::template forward_layers<E>(run.values[node.inputs[0]], run.chains[k - 1], run.stamp);
      return true;
    } else {
      return false;
    }
  }
};

/// The same with hooks, which run as their time comes.
template <class E, bool Partial = false>
struct hooked_forward_pass {
  using T = element_of<E>;
  const execution<T>& run;
  hook_runner& hooks;
  const int* begins;
  leaf_boundary<T>* boundary = nullptr;
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    hooks.run_until(begins[k]);
    forward_pass<E, leaf_boundary<T>*, Partial> one{run, k, boundary};
    one(leaf);
    // Leaf calls end where they begin, but for the node itself.
    hooks.run_until(begins[k++] + 1);
  }
};

/// Visits the leaves in reverse order and runs each backward; `completed(n)` hears that the first n
/// elements of the gradients are final, and, if it has them, `before_leaf(k)` and `after_leaf(k)`.
template <class E, class Completed>
struct backward_pass {
  using T = element_of<E>;
  const execution<T>& run;
  Completed& completed;
  int k = 0;

  /// Whether somebody rounds what a leaf gives; the gradients that it then writes are no sums.
  static constexpr bool bounded = requires { completed.boundary; };

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    if (!run.runs_backward[--k]) return;
    const program_node& node = run.nodes[k];
    context<T> c = begin(node);
    if constexpr (!is_view_module<Leaf>()) {
      if (run.fused == nullptr || !run.fused[k].backward_is_done)
        leaf.backward(element_traits<E>::given(c, run.is_full(node)));
    } else {
      const T* gradient = run.value_gradients[node.first_output];
      if (c.edge_gradients[0] != nullptr && c.edge_gradients[0] != gradient)
        std::memcpy(c.edge_gradients[0], gradient, bytes(node.first_output));
    }
    end(node);
  }

 private:
  // What is the same for all leaves.
  [[gnu::noinline]] context<T> begin(const program_node& node) {
    if constexpr (requires { completed.before_leaf(k); }) completed.before_leaf(k);
    for (std::size_t i = 0; i < node.output_count; ++i) {
      const int v = node.first_output + static_cast<int>(i);
      if (run.unwritten[v]) std::memset(run.value_gradients[v], 0, bytes(v));
    }
    context<T> c = run.backward_context_of(node);
    c.accumulating = (run.accumulate && !bounded) || !run.last_call[k];
    if constexpr (bounded) completed.boundary->before_backward(run, k);
    return c;
  }

  [[gnu::noinline]] void end(const program_node& node) {
    if constexpr (bounded) completed.boundary->after_backward(run, k);
    for (int e = node.first_edge, i = 0; i < static_cast<int>(node.input_count); ++e, ++i)
      if (T* sum = run.edge_sums[e])
        cpu::add<T>(run.shapes[node.inputs[i]].numel(), sum, run.edge_gradients[e], sum);
    if constexpr (bounded) completed.boundary->after_sums(run, k);
    if constexpr (requires { completed.after_leaf(k); }) completed.after_leaf(k);
    if (run.first_call[k] && run.leaves[node.leaf].parameter_count > 0)
      completed(run.completed[node.leaf]);
  }

  std::size_t bytes(int v) const {
    return static_cast<std::size_t>(run.shapes[v].numel()) * sizeof(T);
  }
};

struct nobody_listens {
  void operator()(dim_t) const {}
};

/// Takes over the extents that only run time knows, leaf by leaf.
struct bind_leaves {
  const program_node* nodes;
  const shape* shapes;
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(Leaf& leaf) {
    const program_node& node = nodes[k++];
    if constexpr (requires(const shape_list& in) { leaf.bind(in); }) {
      shape_list in;
      for (std::size_t i = 0; i < node.input_count; ++i) in.push_back(shapes[node.inputs[i]]);
      leaf.bind(in);
    }
  }
};

/// Lets each leaf finish what the specs of its parameters and buffers cannot say.
template <class T>
struct finish_leaves {
  const program_node* nodes;
  const program_leaf* leaves;
  T* const* parameters;
  std::byte* const* buffers;
  const bool* left_out = nullptr;  ///< By leaf, where not all have parameters yet.
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    const int l = nodes[k++].leaf;
    if (left_out != nullptr && left_out[l]) return;
    [[maybe_unused]] const program_leaf& own = leaves[l];
    if constexpr (requires { leaf.template finish_initialization<T>(parameters, buffers); })
      leaf.template finish_initialization<T>(parameters + own.first_parameter,
                                             buffers + own.first_buffer);
  }
};

/// Finds the first leaf that refuses to run, for a reason that `infer` cannot know.
struct check_leaves {
  const program_node* nodes;
  const shape* shapes;
  bool training;
  const bool* runs = nullptr;  ///< By arm, where not all do.
  diagnostic error{};
  int leaf = 0;  ///< The one that refuses.
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& m) {
    const program_node& node = nodes[k++];
    if constexpr (requires(const shape_list& in) { m.check(in, training); }) {
      if (!error.ok() || (node.arm >= 0 && !runs[node.arm])) return;
      shape_list in;
      for (std::size_t i = 0; i < node.input_count; ++i) in.push_back(shapes[node.inputs[i]]);
      error = m.check(in, training);
      leaf = node.leaf;
    }
  }
};

/// Lets each leaf that reads indices see them before anything runs: it throws where they are wrong.
template <class T>
struct validate_leaves {
  const execution<T>& run;
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    const program_node& node = run.nodes[k++];
    if constexpr (requires(const context<T>& c) { leaf.validate(c); })
      if (run.does_run(node)) leaf.validate(run.context_of(node));
  }
};

template <class E>
struct layers_finder {
  using T = element_of<E>;
  void (*run)(const T* x, cpu::dense_chain<T>& chain, std::uint64_t stamp) = nullptr;
  bool found = false;  ///< Under -fsanitize=undefined, a comparison with null is no constant.

  template <class Leaf>
  constexpr void operator()(const Leaf&) {
    if constexpr (runs_layers<E, Leaf>) {
      run = &Leaf::template forward_layers<T>;
      found = true;
    }
  }
};

template <class E, any_module M>
constexpr layers_finder<E> find_layers() {
  layers_finder<E> f;
  const M m{};
  for_each_leaf(m, f);
  return f;
}

/// What runs layers one after another; null where none can.
template <class E, any_module M>
inline constexpr auto run_layers_of = find_layers<E, M>().run;

template <class T>
struct leaf_questions {
  bool checks = false, validates = false, finishes = false;

  template <class Leaf>
  constexpr void operator()(const Leaf&) {
    checks = checks || requires(const Leaf& m, const shape_list& in) { m.check(in, true); };
    validates = validates || requires(const Leaf& m, const context<T>& c) { m.validate(c); };
    finishes =
        finishes || requires(const Leaf& m, T* const* parameters, std::byte* const* buffers) {
      m.template finish_initialization<T>(parameters, buffers);
    };
  }
};

template <class T, any_module M>
constexpr leaf_questions<T> questions_of() {
  leaf_questions<T> q;
  const M m{};
  for_each_leaf(m, q);
  return q;
}

template <any_module M>
inline constexpr bool any_leaf_checks = questions_of<float, M>().checks;
template <class T, any_module M>
inline constexpr bool any_leaf_validates = questions_of<T, M>().validates;
template <class T, any_module M>
inline constexpr bool any_leaf_finishes = questions_of<T, M>().finishes;

}  // namespace ikebana::detail
