#pragma once

#include <boost/hana/core/is_a.hpp>
#include <boost/hana/fwd/unpack.hpp>
#include <boost/hana/tuple.hpp>
#include <boost/hana/unpack.hpp>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/shape_list.hpp"

namespace ikebana {

/// A module that computes: a cheap, default-constructible value that holds options and no weights.
/// It has
/// - `static constexpr std::string_view kind`: its name, "linear";
/// - `constexpr inferred infer(const shape&...) const`: output shapes, or a diagnostic (or
///   `infer(const shape_list&)`);
/// - `template <class T> void forward(const context<T>&) const`, and `backward` likewise (where a
///   `precision` rounds its products, the whole type: `template <class C> .. (const C&)`);
///
/// and where it needs them
/// - `parameters()`, `buffers()`, `saved(const shape_list&)`: arrays of specs;
/// - `become<shape... In>()`: the module that a lazy one becomes for inputs of these shapes;
/// - `bind(const shape_list&)`: takes over the extents that only run time knows;
/// - `bind_state(std::span<const shape> parameters, std::span<const shape> buffers)`: the same from
///   the shapes of a state that is loaded before any input;
/// - `input_kind(i, count)`: an `element_kind` for input i of count, where not all are `real`;
/// - `input_names`: an array of the names by which inputs may be given;
/// - `check(const shape_list&, bool training)`: what else is wrong, asked before each forward;
/// - `validate(const context<T>&)`: throws where indices or truth values given to it are wrong,
///   before anything runs;
/// - `finish_initialization(T* const* parameters, std::byte* const* buffers)`: runs once after
///   parameters and buffers have their initial values;
/// - `describe(description&)`: its options, for printing;
/// - `multiply_adds(const shape_list& in, const shape_list& out)`;
/// - `keeps`: what backward reads of inputs and outputs (default: both);
/// - `is_view`: the output is the input's memory under another shape;
/// - `in_place`: forward may write its output over input 0, and backward likewise, element by
/// element;
/// - `as_activation`: the cpu::activation that it is, with a slope that its output tells;
/// - `takes_residual`: forward adds `context::residual()` to its output;
/// - `takes_function`: forward then applies `context::function()`;
/// - `takes_norm`: forward, before that, multiplies channel c of its output by
///   `context::channel_scale()[c]` and adds `channel_shift()[c]`;
/// - `is_channel_norm`: in evaluation it is such a map: of parameters weight and bias if
/// `is_affine`,
///   buffers mean and variance, `eps`, and two saved values for each channel;
/// - `is_identity_in_evaluation`: forward gives its input then;
/// - `adds_before`: forward adds `context::residual()` to input 0, where it stands, before all
/// else;
/// - `takes_slope`: backward applies `context::input_slope()` to the gradient of input 0;
/// - `is_lazy`: a dimension is still left out;
/// - `is_random`: it draws from `context::random()`;
/// - `outputs`: how many there are (default 1).
template <class M>
concept leaf_module = requires {
  { M::kind } -> std::convertible_to<std::string_view>;
}
&&std::default_initializable<M> && !requires(const M& m) { m.children; };

/// A module made of modules: `children` is a hana::tuple of modules and `named` ones, `wiring()`
/// says which values each step takes, `rebind(child...)` makes the same composition of other
/// children.
template <class M>
concept composite_module = requires(const M& m) {
  { M::kind } -> std::convertible_to<std::string_view>;
  m.children;
  M::wiring();
};

template <class M>
concept any_module = leaf_module<M> || composite_module<M>;

/// What the elements of a module's input are: numbers of the model's type, indices (std::int64_t)
/// or truth values (bool). Outputs are of the model's type.
enum class element_kind : unsigned char { real, index, boolean };

/// What a module's backward reads of its inputs and outputs; the memory of the rest is free after
/// forward.
enum class kept : unsigned char { nothing = 0, input = 1, output = 2, both = 3 };

/// What a leaf offers to those that are called before and after it (see model/fusion.hpp).
struct leaf_role {
  bool in_place = false;
  bool is_sum = false;
  bool takes_residual = false;
  bool takes_function = false;
  bool takes_norm = false;
  bool is_channel_norm = false;
  bool is_identity_in_evaluation = false;
  bool adds_before = false;
  bool takes_slope = false;
  bool is_layer = false;
  cpu::activation as_activation = cpu::activation::none;
  bool is_affine = false;  ///< Of a channel norm, as is `eps`.
  double eps = 0;
};

/// A composition as values: step s runs child `steps[s].child` on the values `steps[s].inputs` and
/// defines the next values, as many as that child has outputs. Values 0 .. inputs-1 are the
/// composition's inputs.
template <std::size_t Steps>
struct wiring_table {
  struct step {
    int child = 0;
    int inputs[max_arity]{};
    std::size_t input_count = 1;
  };
  step steps[Steps == 0 ? 1 : Steps]{};
  int inputs = 1;
  int outputs[max_arity]{};
  std::size_t output_count = 1;
  static constexpr std::size_t size() { return Steps; }

  /// Whether each of the children has one step, in the order in which they stand.
  constexpr bool in_order(std::size_t children) const {
    for (std::size_t s = 0; s < Steps; ++s)
      if (steps[s].child != static_cast<int>(s)) return false;
    return children == Steps;
  }
};

namespace detail {

template <class M>
constexpr kept keeps_of() {
  if constexpr (requires { M::keeps; })
    return M::keeps;
  else
    return kept::both;
}

template <class M>
constexpr element_kind input_kind_of([[maybe_unused]] std::size_t i,
                                     [[maybe_unused]] std::size_t count) {
  if constexpr (requires { M::input_kind(i, count); })
    return M::input_kind(i, count);
  else
    return element_kind::real;
}

template <class M>
constexpr bool is_view_module() {
  if constexpr (requires { M::is_view; })
    return M::is_view;
  else
    return false;
}

template <class M>
constexpr leaf_role role_of([[maybe_unused]] const M& m) {
  leaf_role role;
  if constexpr (requires { M::in_place; }) role.in_place = M::in_place;
  if constexpr (requires { M::is_sum; }) role.is_sum = M::is_sum;
  if constexpr (requires { M::takes_residual; }) role.takes_residual = M::takes_residual;
  if constexpr (requires { M::takes_function; }) role.takes_function = M::takes_function;
  if constexpr (requires { M::takes_norm; }) role.takes_norm = M::takes_norm;
  if constexpr (requires { M::is_channel_norm; }) {
    role.is_channel_norm = M::is_channel_norm;
    role.is_affine = M::is_affine;
    role.eps = m.eps;
  }
  if constexpr (requires { M::is_identity_in_evaluation; })
    role.is_identity_in_evaluation = M::is_identity_in_evaluation;
  if constexpr (requires { M::adds_before; }) role.adds_before = M::adds_before;
  if constexpr (requires { M::takes_slope; }) role.takes_slope = M::takes_slope;
  if constexpr (requires { M::is_layer; }) role.is_layer = M::is_layer;
  if constexpr (requires { M::as_activation; }) role.as_activation = M::as_activation;
  return role;
}

template <class M>
constexpr std::size_t output_count() {
  if constexpr (composite_module<M>)
    return M::wiring().output_count;
  else if constexpr (requires { M::outputs; })
    return M::outputs;
  else
    return 1;
}

template <class M>
constexpr std::size_t parameter_count() {
  if constexpr (requires(const M& m) { m.parameters(); })
    return std::tuple_size_v<std::remove_cvref_t<decltype(std::declval<const M&>().parameters())>>;
  else
    return 0;
}

template <class M>
constexpr std::size_t buffer_count() {
  if constexpr (requires(const M& m) { m.buffers(); })
    return std::tuple_size_v<std::remove_cvref_t<decltype(std::declval<const M&>().buffers())>>;
  else
    return 0;
}

template <class M>
constexpr std::size_t saved_count() {
  if constexpr (requires(const M& m, const shape_list& s) { m.saved(s); })
    return std::tuple_size_v<
        std::remove_cvref_t<decltype(std::declval<const M&>().saved(shape_list{}))>>;
  else
    return 0;
}

/// Calls a leaf's infer with as many shapes as there are inputs.
template <leaf_module M>
constexpr inferred infer_leaf(const M& m, const shape_list& in) {
  if constexpr (requires { m.infer(in); }) {
    return m.infer(in);
  } else {
    if constexpr (requires { m.infer(in[0]); })
      if (in.size() == 1) return m.infer(in[0]);
    if constexpr (requires { m.infer(in[0], in[1]); })
      if (in.size() == 2) return m.infer(in[0], in[1]);
    if constexpr (requires { m.infer(in[0], in[1], in[2]); })
      if (in.size() == 3) return m.infer(in[0], in[1], in[2]);
    if constexpr (requires { m.infer(in[0], in[1], in[2], in[3]); })
      if (in.size() == 4) return m.infer(in[0], in[1], in[2], in[3]);
    return diagnostic{"a module was given {got} inputs, which it does not take", 0,
                      static_cast<dim_t>(in.size())};
  }
}

/// Calls v(leaf) for each leaf in the order of forward. Named on the module and the visitor alone:
/// a visitor is a plain struct, so that no symbol carries the type of a whole network once for each
/// leaf.
template <class V, class M>
constexpr void for_each_leaf(M& m, V& v) {
  if constexpr (composite_module<std::remove_const_t<M>>) {
    boost::hana::unpack(m.children, [&v](auto&... child) {
      if constexpr (std::remove_const_t<M>::wiring().in_order(sizeof...(child))) {
        (for_each_leaf(module_of(child), v), ...);
      } else {
        constexpr auto w = std::remove_const_t<M>::wiring();
        for (std::size_t s = 0; s < w.size(); ++s) {
          int i = 0;
          ((i++ == w.steps[s].child ? for_each_leaf(module_of(child), v) : void()), ...);
        }
      }
    });
  } else {
    v(m);
  }
}

/// The same from the last to the first.
template <class V, class M>
constexpr void for_each_leaf_reversed(M& m, V& v) {
  if constexpr (composite_module<std::remove_const_t<M>>) {
    boost::hana::unpack(m.children, [&v](auto&... child) {
      if constexpr (std::remove_const_t<M>::wiring().in_order(sizeof...(child))) {
        // An assignment evaluates its right side first, so this fold runs from the last child to
        // the first.
        [[maybe_unused]] int order = 0;
        static_cast<void>(((for_each_leaf_reversed(module_of(child), v), order) = ... = 0));
      } else {
        constexpr auto w = std::remove_const_t<M>::wiring();
        for (std::size_t s = w.size(); s-- > 0;) {
          int i = 0;
          ((i++ == w.steps[s].child ? for_each_leaf_reversed(module_of(child), v) : void()), ...);
        }
      }
    });
  } else {
    v(m);
  }
}

}  // namespace detail
}  // namespace ikebana
