#pragma once

#include <array>
#include <boost/hana/at.hpp>
#include <boost/hana/core/is_a.hpp>
#include <boost/hana/length.hpp>
#include <boost/hana/tuple.hpp>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/loop_step.hpp"
#include "ikebana/module/alike.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/shape_list.hpp"
#include "ikebana/module/value_layout.hpp"

namespace ikebana {

/// A leaf: a module that computes. It is a cheap, default-constructible value that holds options
/// and no weights. It has
/// - `static constexpr std::string_view kind`: its name, "linear";
/// - `constexpr inferred infer(const shape&...) const`: the output shapes, or a diagnostic (or
///   `infer(const shape_list&)`);
/// - `template <class T> void forward(const context<T>&) const`, and `backward` likewise (if a
///   `precision` rounds its products, templates over the whole context: `template <class C> ..
///   (const C&)`);
///
/// and where needed
/// - `parameters()`, `buffers()`, `saved(const shape_list&)`: arrays of specs;
/// - `become<shape... In>()`: the module that a lazy one resolves to for inputs of these shapes;
/// - `bind(const shape_list&)`: sets the extents known only at run time from the inputs;
/// - `bind_state(std::span<const shape> parameters, std::span<const shape> buffers)`: sets them
///   from the shapes of a state that is loaded before any input;
/// - `input_kind(i, count)`: the `element_kind` of input i of count, if not all are `real`;
/// - `input_names`: an array of the names by which inputs can be passed;
/// - `check(const shape_list&, bool training)`: further checks, made before each forward;
/// - `validate(const context<T>&)`: throws if its indices or masks are invalid, before anything
///   runs;
/// - `finish_initialization(T* const* parameters, std::byte* const* buffers)`: runs once after
///   parameters and buffers have their initial values;
/// - `describe(description&)`: its options, for printing;
/// - `multiply_adds(const shape_list& in, const shape_list& out)`: the number of multiply-adds;
/// - `keeps`: what backward reads of inputs and outputs (default: both); a function of that name if
///   it depends on the options;
/// - `plan_bytes`: the bytes that each call of it in a network keeps from one run to the next, in
///   `context::plan`, aligned to 8; then `algorithm(std::span<const std::byte>)` names for
///   summaries what they say of forward;
/// - `is_view`: the output is the input's memory under another shape;
/// - `view(const shape&)`: the output as a view of the input, as a view_map: forward runs only if a
///   reader of the output needs it contiguous;
/// - `joins_along()`: the dimension of the output along which it sets its inputs one after the
///   other: one that is there already, and whose gradient is, is not to be copied;
/// - `reads_strides()`: how forward and backward read inputs that are such views, by
///   `context::input_strides` (default: strided_reader::none);
/// - `in_place`: forward can overwrite input 0 with its output, and backward likewise, element by
///   element;
/// - `as_activation`: the cpu::activation that it computes, whose slope is a function of the
///   output;
/// - `takes_residual`: forward adds `context::residual()` to its output;
/// - `takes_function`: forward then applies `context::function()`;
/// - `takes_norm`: before that, forward multiplies channel c of its output by
///   `context::channel_scale()[c]` and adds `channel_shift()[c]`;
/// - `is_channel_norm`: in evaluation it is such a map, given by the parameters weight and bias if
///   `is_affine`, the buffers mean and variance, `eps`, and two saved values per channel;
/// - `is_identity_in_evaluation`: in evaluation, forward returns its input;
/// - `folded()` and `fold_parameters(parameters, buffers, to)`: the module, and its parameters,
/// that
///   give the same in evaluation, if some can be computed when the model is frozen;
/// - `with_bias()`: the module with a second parameter that is added to channel c of its output,
///   where c is dimension 0 of the first, a weight that it multiplies by;
/// - `transposed_groups`, beside `with_bias`: the number of groups, of which dimension 1 of the
///   weight is the outputs, and dimension 0 the inputs of all;
/// - `adds_zeros`, beside `with_bias`: channels are the last dimension of inputs and outputs if the
///   weight has 2, else the one before the spatial ones; dimension 1 of the weight is the input's
///   channels, of a group; the value tells whether the input is extended by zeros;
/// - `element_map(parameters, buffers, k)`: the factor and the shift, as doubles, of which it makes
///   element k of the last dimension in evaluation;
/// - `adds_before`: before all else, forward adds `context::residual()` to input 0 in place;
/// - `takes_slope`: backward applies `context::input_slope()` to the gradient of input 0;
/// - `shape_options()`: a number for those of its options on which output shapes depend, if these
/// are
///   members: what a graph captures must not change it;
/// - `loop_step()`: what it computes of each element or row, for fusion with others into one loop;
/// - `adds_gradient()`: backward adds to the gradient of input 0 if `context::adds_gradient()`;
/// - `is_source`: it uses the shapes of its inputs alone, and no gradient goes back to them;
/// - `stops_gradient()`: no gradient goes back to its inputs, because there is none or it is 0
///   everywhere;
/// - `is_affine_in_each_input`: it is, with one output, so that `jvp` costs forwards alone;
/// - `is_stateful`: forward changes buffers in evaluation too (default: true if there are buffers);
/// - `skips_parameter_gradients`: backward leaves out the gradients of its parameters if
///   `parameter_gradient(0)` is null, as it is if it is frozen;
/// - `is_checkpoint`: backward runs forward again instead of keeping what it needs;
/// - `is_lazy`: one of its dimensions is lazy;
/// - `is_random`: it draws from `context::random()`;
/// - `outputs`: the number of outputs (default 1);
/// - `first_output_is_result`: a `sequential` may go on with the first output alone (default true).
///
/// The concept checks only the kind and the constructor. If another member is missing or has a
/// different signature, `infer` and `initialize` say so in one sentence (module/protocol.hpp).
template <class M>
concept leaf_module = requires {
  { M::kind } -> std::convertible_to<std::string_view>;
}
&&std::default_initializable<M> && !requires(const M& m) { m.children; };

/// A module made of modules: `children` is a hana::tuple of modules and `named` ones, `wiring()`
/// tells which values each step takes, and `rebind(child...)` makes the same composition with other
/// children. `observed_paths` are those of modules whose outputs are its last ones (-1 in the
/// wiring). A graph has `alike` children too, and `numbered_children()`, the array of what bears
/// an index or a name; elsewhere each child is one of these.
template <class M>
concept composite_module = requires(const M& m) {
  { M::kind } -> std::convertible_to<std::string_view>;
  m.children;
  M::wiring();
};

template <class M>
concept any_module = leaf_module<M> || composite_module<M>;

/// The elements of a module's input: numbers of the model's type, indices (std::int64_t) or masks
/// (bool). Outputs are of the model's type.
enum class element_kind : unsigned char { real, index, boolean };

/// What a module's backward reads of its inputs and outputs; the memory of the rest is free after
/// forward.
enum class kept : unsigned char { nothing = 0, input = 1, output = 2, both = 3 };

/// What a leaf offers for fusion with the calls before and after it (see model/plan/fusion.hpp).
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
  bool is_stateful = false;  ///< See is_stateful().
  bool is_frozen = false;    ///< Its buffers do not change in training, either.
  bool is_source = false;
  bool is_random = false;
  bool stops_gradient = false;
  bool adds_gradient = false;
  bool joins = false;     ///< See joins_along().
  dim_t joins_along = 0;  ///< A dimension of the output; negative ones count from the end.
  strided_reader reads_strides = strided_reader::none;
  cpu::activation as_activation = cpu::activation::none;
  bool is_affine = false;  ///< Of a channel norm, as `eps` is.
  double eps = 0;
  cpu::loop_step step{};
};

/// A composition as values: step s runs child `steps[s].child` on the values `steps[s].inputs` and
/// defines the next values, as many as the child has outputs. Values 0 .. inputs-1 are the
/// composition's inputs.
template <std::size_t Steps>
struct wiring_table {
  struct step {
    int child = 0;
    int inputs[max_arity]{};
    std::size_t input_count = 1;
    int part = 0;       ///< Of a child that is `alike`.
    int numbered = -1;  ///< The index among `numbered_children()`; -1: that of the child.

    constexpr int number() const { return numbered < 0 ? child : numbered; }
  };
  step steps[Steps == 0 ? 1 : Steps]{};
  int inputs = 1;
  int outputs[max_arity]{};
  std::size_t output_count = 1;
  static constexpr std::size_t size() { return Steps; }

  /// Whether the steps run each child once, in order.
  constexpr bool in_order(std::size_t children) const {
    if (children != Steps) return false;
    for (std::size_t s = 0; s < Steps; ++s)
      if (steps[s].child != static_cast<int>(s)) return false;
    return true;
  }
};

namespace detail {

/// The wiring of M, evaluated once. Without the cache, the time would be exponential in the depth,
/// since the wiring of a composition uses its children's several times.
template <composite_module M>
inline constexpr auto wiring_of = M::wiring();

template <class M>
constexpr kept keeps_of([[maybe_unused]] const M& m) {
  if constexpr (requires { kept{m.keeps()}; })
    return m.keeps();
  else if constexpr (requires { M::keeps; })
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

/// Whether a leaf's output may be a view of its input.
template <class M>
concept maybe_view = requires(const M& m, const shape& s) {
  m.view(s);
};

template <class M>
constexpr std::size_t buffer_count() {
  if constexpr (requires(const M& m) { m.buffers(); })
    return std::tuple_size_v<std::remove_cvref_t<decltype(std::declval<const M&>().buffers())>>;
  else
    return 0;
}

/// Whether forward changes M's buffers in evaluation mode too, so that it must not be repeated:
/// true for a leaf with buffers unless its `is_stateful` is false.
template <class M>
constexpr bool is_stateful() {
  if constexpr (requires { M::is_stateful; })
    return M::is_stateful;
  else
    return buffer_count<M>() > 0;
}

/// Whether backward runs M again, see compose/checkpoint.hpp.
template <class M>
constexpr bool is_checkpoint() {
  return requires { M::is_checkpoint; };
}

/// The number of M's buffers that forward may change.
template <class M>
constexpr std::size_t changing_buffer_count() {
  if constexpr (requires { M::is_frozen; })
    return 0;
  else
    return buffer_count<M>();
}

template <class M>
constexpr cpu::loop_step loop_step_of([[maybe_unused]] const M& m) {
  if constexpr (requires { m.loop_step(); })
    return m.loop_step();
  else if constexpr (requires { M::as_activation; })
    return {.kind = cpu::loop_step::kinds::function,
            .f = static_cast<unsigned char>(M::as_activation),
            .cost = 1};
  else
    return {};
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
  if constexpr (requires { M::is_source; }) role.is_source = M::is_source;
  if constexpr (requires { M::is_random; }) role.is_random = M::is_random;
  if constexpr (requires { m.stops_gradient(); }) role.stops_gradient = m.stops_gradient();
  if constexpr (requires { M::is_source; }) role.stops_gradient = M::is_source;
  if constexpr (requires { m.reads_strides(); }) role.reads_strides = m.reads_strides();
  if constexpr (requires { m.joins_along(); }) {
    role.joins = true;
    role.joins_along = m.joins_along();
  }
  if constexpr (requires { m.adds_gradient(); }) role.adds_gradient = m.adds_gradient();
  if constexpr (requires { M::as_activation; }) role.as_activation = M::as_activation;
  role.step = loop_step_of(m);
  role.is_stateful = is_stateful<M>();
  // The parameters of a frozen leaf are buffers, which what calls several leaves does not know.
  if constexpr (requires { M::is_frozen; }) {
    role.is_frozen = true;
    role.is_layer = role.is_channel_norm = false;
  }
  return role;
}

template <class M>
constexpr std::size_t output_count() {
  if constexpr (composite_module<M>)
    return wiring_of<M>.output_count;
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
constexpr std::size_t saved_count() {
  if constexpr (requires(const M& m, const shape_list& s) { m.saved(s); })
    return std::tuple_size_v<
        std::remove_cvref_t<decltype(std::declval<const M&>().saved(shape_list{}))>>;
  else
    return 0;
}

/// A multiple of 8, so that what the next module keeps is aligned, too.
template <class M>
constexpr std::size_t plan_bytes() {
  if constexpr (requires { M::plan_bytes; })
    return (M::plan_bytes + 7) / 8 * 8;
  else
    return 0;
}

template <any_module M, bool OfLowering = false>
constexpr bool is_stateless();

template <class C, bool OfLowering>
constexpr bool is_stateless_child() {
  if constexpr (is_alike<C>)
    return C::is_empty;
  else
    return is_stateless<typename unwrap_named<C>::type, OfLowering>();
}

/// Whether a module is completely described by its type; `OfLowering`: but for values that its
/// forward alone reads, as a leaf with `is_lowered_by_type` says.
template <any_module M, bool OfLowering>
constexpr bool is_stateless() {
  if constexpr (composite_module<M>)
    return []<class... C>(const boost::hana::tuple<C...>*) {
      return (is_stateless_child<C, OfLowering>() && ... && true);
    }(static_cast<const decltype(M::children)*>(nullptr));
  else if constexpr (OfLowering && requires { M::is_lowered_by_type; })
    return M::is_lowered_by_type;
  else
    return std::is_empty_v<M>;
}

/// The number of inputs of a leaf whose infer takes a shape for each; 0 if it takes a list.
template <class M>
constexpr std::size_t leaf_inputs() {
  if constexpr (requires(const M& m, const shape_list& s) { m.infer(s); })
    return 0;
  else if constexpr (requires(const M& m, const shape& s) { m.infer(s); })
    return 1;
  else if constexpr (requires(const M& m, const shape& s) { m.infer(s, s); })
    return 2;
  else
    return requires(const M& m, const shape& s) { m.infer(s, s, s); }
  ? 3 : 4;
}

/// "linear takes 1 input, got {got}".
template <class M>
inline constexpr auto input_count_sentence = [] {
  constexpr std::size_t inputs = leaf_inputs<M>();
  text<256> t;
  t.append(M::kind).append(" takes ").append(static_cast<dim_t>(inputs));
  return t.append(inputs == 1 ? " input" : " inputs")
      .append(", got {got}: concat, add and mul make one value of several");
}();

/// Calls a leaf's infer with one shape per input.
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
    return diagnostic{input_count_sentence<M>.data, static_cast<dim_t>(leaf_inputs<M>()),
                      static_cast<dim_t>(in.size())};
  }
}

/// Calls v(leaf) for each leaf in forward order. Instantiated for the module and the visitor only:
/// a visitor is a plain struct, so that no symbol repeats the type of the whole network for each
/// leaf.
template <class V, class M>
constexpr void for_each_leaf(M& m, V& v);
template <class V, class M>
constexpr void for_each_leaf_reversed(M& m, V& v);

// Children are accessed by index: as arguments of one call, each would take a register or a stack
// slot.
template <class M>
inline constexpr std::size_t child_count =
    decltype(boost::hana::length(std::declval<const M&>().children))::value;

template <class V, class M, std::size_t... I>
constexpr void visit_children(M& m, V& v, std::index_sequence<I...>) {
  constexpr const auto& w = wiring_of<std::remove_const_t<M>>;
  if constexpr (w.in_order(sizeof...(I))) {
    (for_each_leaf(part_of(boost::hana::at_c<I>(m.children), w.steps[I].part), v), ...);
  } else {
    for (std::size_t s = 0; s < w.size(); ++s)
      static_cast<void>(
          ((static_cast<int>(I) == w.steps[s].child &&
            (for_each_leaf(part_of(boost::hana::at_c<I>(m.children), w.steps[s].part), v), true)) ||
           ...));
  }
}

template <class V, class M, std::size_t... I>
constexpr void visit_children_reversed(M& m, V& v, std::index_sequence<I...>) {
  constexpr const auto& w = wiring_of<std::remove_const_t<M>>;
  constexpr std::size_t last = sizeof...(I) - 1;
  if constexpr (w.in_order(sizeof...(I))) {
    (for_each_leaf_reversed(
         part_of(boost::hana::at_c<last - I>(m.children), w.steps[last - I].part), v),
     ...);
  } else {
    for (std::size_t s = w.size(); s-- > 0;)
      static_cast<void>(
          ((static_cast<int>(I) == w.steps[s].child &&
            (for_each_leaf_reversed(part_of(boost::hana::at_c<I>(m.children), w.steps[s].part), v),
             true)) ||
           ...));
  }
}

template <class V, class M>
constexpr void for_each_leaf(M& m, V& v) {
  if constexpr (composite_module<std::remove_const_t<M>>)
    visit_children(m, v, std::make_index_sequence<child_count<M>>{});
  else
    v(m);
}

/// The same in reverse order.
template <class V, class M>
constexpr void for_each_leaf_reversed(M& m, V& v) {
  if constexpr (composite_module<std::remove_const_t<M>>)
    visit_children_reversed(m, v, std::make_index_sequence<child_count<M>>{});
  else
    v(m);
}

template <composite_module M>
constexpr auto number_children() {
  if constexpr (requires { M::numbered_children(); }) {
    return M::numbered_children();
  } else {
    std::array<numbered_child, child_count<M>> each{};
    for (std::size_t i = 0; i < child_count<M>; ++i) each[i].child = static_cast<int>(i);
    return each;
  }
}

/// What bears an index or a name in M.
template <composite_module M>
inline constexpr auto numbered_children_of = number_children<M>();

/// Calls f(module, child_name) for each of them.
template <class M, class F>
constexpr void for_each_child(const M& m, F&& f) {
  constexpr const auto& numbered = numbered_children_of<M>;
  [&]<class... C, std::size_t... I>(const boost::hana::tuple<C...>*, std::index_sequence<I...>) {
    for (std::size_t n = 0; n < numbered.size(); ++n)
      static_cast<void>(((static_cast<int>(I) == numbered[n].child &&
                          (f(part_of(boost::hana::at_c<I>(m.children), numbered[n].part),
                             child_name{name_of<C>(), is_named<C> ? -1 : static_cast<int>(n)}),
                           true)) ||
                         ...));
  }(static_cast<const decltype(M::children)*>(nullptr), std::make_index_sequence<child_count<M>>{});
}

}  // namespace detail
}  // namespace ikebana
