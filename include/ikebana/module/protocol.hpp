#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"

namespace ikebana {
class description;
}

namespace ikebana::detail {

// Checks that a leaf has the members that `leaf_module` documents. This is done once per type of
// leaf, before anything else is instantiated for it, so that a mistake is one sentence with the
// path of the module.

/// The name is ambiguous in the probe if M has a member of this name, which may be a template.
struct other_become {
  int become;
};
template <class M>
struct become_probe : M, other_become {};

template <class M>
constexpr bool lacks_become() {
  if constexpr (std::is_final_v<M>)
    return false;
  else
    return requires { &become_probe<M>::become; }
  || requires { &M::become; };
}

template <auto>
struct constant_expression;

constexpr shape_list dynamic_inputs(std::size_t inputs, std::size_t rank) {
  shape s;
  while (s.rank() < rank) s.push_back(dynamic);
  shape_list list;
  while (list.size() < inputs) list.push_back(s);
  return list;
}

template <class M, std::size_t Inputs, std::size_t Rank>
concept infers_constant = requires {
  typename constant_expression<(static_cast<void>(infer_leaf(M{}, dynamic_inputs(Inputs, Rank))),
                                0)>;
};
// An infer that uses extents without a check of the rank is constant only for some ranks.
template <class M, std::size_t Inputs>
concept infers_in_compiler = infers_constant<M, Inputs, 8> || infers_constant<M, Inputs, 4> ||
    infers_constant<M, Inputs, 3> || infers_constant<M, Inputs, 2> || infers_constant<M, Inputs, 1>;

template <class M>
constexpr std::size_t infer_arity() {
  if constexpr (requires(const M& m, const shape& s) { m.infer(s); })
    return 1;
  else if constexpr (requires(const M& m, const shape& s) { m.infer(s, s); })
    return 2;
  else if constexpr (requires(const M& m, const shape& s) { m.infer(s, s, s); })
    return 3;
  else if constexpr (requires(const M& m, const shape& s) { m.infer(s, s, s, s); })
    return 4;
  else
    return requires(const M& m, const shape_list& in) { m.infer(in); }
  ? 1 : 0;
}

template <class M>
concept infers_shapes = requires(const M& m, const shape_list& in) {
  { m.infer(in) } -> std::convertible_to<inferred>;
}
|| requires(const M& m, const shape& s) {
  { m.infer(s) } -> std::convertible_to<inferred>;
}
|| requires(const M& m, const shape& s) {
  { m.infer(s, s) } -> std::convertible_to<inferred>;
}
|| requires(const M& m, const shape& s) {
  { m.infer(s, s, s) } -> std::convertible_to<inferred>;
}
|| requires(const M& m, const shape& s) {
  { m.infer(s, s, s, s) } -> std::convertible_to<inferred>;
};

/// An array of specs whose size is part of its type.
template <class A, class Spec>
concept array_of = requires(const std::remove_cvref_t<A>& a) {
  std::tuple_size<std::remove_cvref_t<A>>::value;
  { *a.begin() } -> std::convertible_to<Spec>;
};

/// A module that is never run, because its output is in the memory of another value.
template <class M>
concept runs_nothing = requires {
  M::joins_alternatives;
}
|| requires { requires bool{M::is_view}; };

template <class M>
concept runs_forward = requires(const M& m, const context<float>& c) {
  m.forward(c);
}
|| requires(const M& m, const context<double>& c) { m.forward(c); }
|| runs_nothing<M>;

template <class M>
concept runs_backward = requires(const M& m, const context<float>& c) {
  m.backward(c);
}
|| requires(const M& m, const context<double>& c) { m.backward(c); }
|| runs_nothing<M>;

/// The error of an optional member that exists with another signature; empty if there is none. A
/// member whose constraints are not satisfied counts as missing.
template <class M>
constexpr const char* optional_fault() {
  if constexpr (requires { M::is_lazy; })
    if constexpr (M::is_lazy && lacks_become<M>())
      return "is lazy: it needs template <ike::shape In> constexpr auto become() const, with a "
             "shape for each input";
  if constexpr (requires { &M::parameters; }) {
    if constexpr (!requires(const M& m) {
                    { m.parameters() } -> array_of<parameter_spec>;
                  })
      return "needs parameters() as constexpr std::array<ike::parameter_spec, N> parameters() "
             "const";
    else if constexpr (!requires {
                         typename constant_expression<(static_cast<void>(M{}.parameters()), 0)>;
                       })
      return "needs a constexpr parameters() that uses constant expressions alone";
  }
  if constexpr (requires { &M::buffers; }) {
    if constexpr (!requires(const M& m) {
                    { m.buffers() } -> array_of<buffer_spec>;
                  })
      return "needs buffers() as constexpr std::array<ike::buffer_spec, N> buffers() const";
    else if constexpr (!requires {
                         typename constant_expression<(static_cast<void>(M{}.buffers()), 0)>;
                       })
      return "needs a constexpr buffers() that uses constant expressions alone";
  }
  if constexpr (requires { &M::saved; })
    if constexpr (!requires(const M& m, const shape_list& in) {
                    { m.saved(in) } -> array_of<saved_spec>;
                  })
      return "needs saved() as constexpr std::array<ike::saved_spec, N> saved(const "
             "ike::shape_list&) const";
  if constexpr (requires { &M::bind; })
    if constexpr (!requires(M & m, const shape_list& in) { m.bind(in); })
      return "needs bind() as constexpr void bind(const ike::shape_list&)";
  if constexpr (requires { &M::bind_state; })
    if constexpr (!requires(M & m, shape_span s) { m.bind_state(s, s); })
      return "needs bind_state() as constexpr void bind_state(ike::shape_span parameters, "
             "ike::shape_span buffers)";
  if constexpr (requires { &M::input_kind; })
    if constexpr (!requires(std::size_t i) {
                    { M::input_kind(i, i) } -> std::same_as<element_kind>;
                  })
      return "needs input_kind() as static constexpr ike::element_kind input_kind(std::size_t i, "
             "std::size_t count)";
  if constexpr (requires { &M::check; })
    if constexpr (!requires(const M& m, const shape_list& in) {
                    { m.check(in, true) } -> std::convertible_to<diagnostic>;
                  })
      return "needs check() as ike::diagnostic check(const ike::shape_list&, bool training) const";
  if constexpr (requires { &M::validate; })
    if constexpr (
        !requires(const M& m, const context<float>& c) { m.validate(c); } &&
        !requires(const M& m, const context<double>& c) { m.validate(c); })
      return "needs validate() as template <class T> void validate(const ike::context<T>&) const";
  if constexpr (requires { &M::finish_initialization; })
    if constexpr (
        !requires(const M& m, float* const* p, std::byte* const* b) {
          m.template finish_initialization<float>(p, b);
        } &&
        !requires(const M& m, double* const* p, std::byte* const* b) {
          m.template finish_initialization<double>(p, b);
        })
      return "needs finish_initialization() as template <class T> void finish_initialization(T* "
             "const* parameters, std::byte* const* buffers) const";
  if constexpr (requires { &M::describe; })
    if constexpr (!requires(const M& m, description& d) { m.describe(d); })
      return "needs describe() as void describe(ike::description&) const";
  if constexpr (requires { &M::multiply_adds; })
    if constexpr (!requires(const M& m, const shape_list& in) {
                    { m.multiply_adds(in, in) } -> std::convertible_to<dim_t>;
                  })
      return "needs multiply_adds() as constexpr ike::dim_t multiply_adds(const ike::shape_list& "
             "in, const ike::shape_list& out) const";
  return "";
}

/// The requirement of the protocol that M does not satisfy, in words; empty if there is none.
template <class M>
constexpr const char* protocol_fault() {
  if constexpr (!leaf_module<M>) {
    if constexpr (!requires {
                    { M::kind } -> std::convertible_to<std::string_view>;
                  })
      return "is not a module: it needs static constexpr std::string_view kind";
    else
      return "is not a module: it needs a constructor without arguments";
  } else if constexpr (!infers_shapes<M>) {
    return "needs constexpr ike::inferred infer(const ike::shape&) const, with a shape for each "
           "input";
  } else if constexpr (!infers_in_compiler<M, infer_arity<M>()>) {
    return "needs a constexpr infer() and a constexpr constructor that use constant expressions "
           "alone";
  } else if constexpr (!runs_forward<M>) {
    return "needs template <class T> void forward(const ike::context<T>&) const";
  } else if constexpr (!runs_backward<M>) {
    return "needs template <class T> void backward(const ike::context<T>&) const";
  } else {
    return optional_fault<M>();
  }
}

/// The sentence of this error, which begins with M's kind.
template <class M>
inline constexpr auto protocol_sentence = [] {
  text<320> t;
  if constexpr (leaf_module<M>)
    t.append(M::kind).append(" ");
  else
    t.append("this ");
  return t.append(protocol_fault<M>());
}();

template <class M>
inline constexpr bool has_protocol = *protocol_fault<M>() == '\0';

}  // namespace ikebana::detail
