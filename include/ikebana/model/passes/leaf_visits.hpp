#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/dense_layer.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/model/passes/forward_pass.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

// Further visits of all leaves of a network, and whether any leaf takes part.

/// Sets the extents known only at run time, leaf by leaf.
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

/// Calls finish_initialization of each leaf.
template <class T>
struct finish_leaves {
  const program_node* nodes;
  const program_leaf* leaves;
  T* const* parameters;
  std::byte* const* buffers;
  const bool* left_out = nullptr;  ///< By leaf; null if all have parameters.
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

/// Finds the first leaf whose check fails for a reason that `infer` cannot know.
struct check_leaves {
  const program_node* nodes;
  const shape* shapes;
  bool training;
  const bool* runs = nullptr;  ///< By arm; null if all run.
  diagnostic error{};
  int leaf = 0;  ///< The leaf whose check fails.
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

/// Calls validate of each leaf before anything runs; it throws if indices or masks are invalid.
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

/// Calls f. An error that it throws gets the path of the leaf that it is of: what `path` returns,
/// which is called then.
template <class F, class Path>
void errors_at(const F& f, const Path& path) {
#if defined(__cpp_exceptions)
  const auto text = [&](const error& e) {
    const path_text& leaf = path();
    return (leaf.empty() ? "" : std::string{leaf.view()} + ": ") + e.what();
  };
  try {
    f();
  } catch (const shape_error& e) {
    throw_error(shape_error(text(e)));
  } catch (const error& e) {
    throw_error(error(text(e)));
  }
#else
  static_cast<void>(path);
  f();
#endif
}

template <class T>
struct leaf_questions {
  bool checks = false, validates = false, finishes = false;
  unsigned activations = 0;  ///< Activations that can be fused, as bits of one_activation.

  template <class Leaf>
  constexpr void operator()(const Leaf&) {
    checks = checks || requires(const Leaf& m, const shape_list& in) { m.check(in, true); };
    validates = validates || requires(const Leaf& m, const context<T>& c) { m.validate(c); };
    if constexpr (requires { Leaf::as_activation; })
      activations |= cpu::one_activation(Leaf::as_activation);
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

template <class E>
struct layers_finder {
  using T = element_of<E>;
  void (*run)(const T* x, cpu::dense_chain<T>& chain, std::uint64_t stamp) = nullptr;
  bool found = false;  ///< Under -fsanitize=undefined, comparison with null is not constant.

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

/// Runs consecutive layers; null if the network has none.
template <class E, any_module M>
inline constexpr auto run_layers_of = find_layers<E, M>().run;

}  // namespace ikebana::detail
