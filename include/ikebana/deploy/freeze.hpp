#pragma once

#include <cstddef>
#include <iosfwd>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/deploy/embedded.hpp"
#include "ikebana/deploy/fold.hpp"
#include "ikebana/deploy/frozen_weights.hpp"
#include "ikebana/deploy/lane_memory.hpp"
#include "ikebana/model/calls/call_arguments.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/model/network/owned_tables.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/print.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/shape_list.hpp"

namespace ikebana {

namespace detail {

/// Whether X is a model, is derived from one or has the members of one.
template <class E, class M, shape... In>
void as_model(const model<E, M, In...>*);
template <class X>
concept replica = requires {
  typename X::model_type;
};
template <replica Replica>
const typename Replica::model_type* model_of(const Replica&) {
  return nullptr;
}
template <class X>
concept freezable = replica<X> || requires(const X* m) {
  detail::as_model(m);
};

namespace misuse {
IKEBANA_MISUSE(freeze_takes_an_initialized_model,
               "freeze takes an initialized model: freeze(initialize<float, shape{dynamic, "
               "4}>(module, seed{1}))");
IKEBANA_MISUSE(inference_without_a_lane,
               "an inference_model is called with a lane, which outlives its output, then the "
               "inputs: auto lane = net.lane(); net(lane, x)");
}  // namespace misuse

}  // namespace detail

template <model_element E, resolved_module M, shape... In>
class inference_model;

/// What one thread or one stream needs to run an inference_model: the activations and the state of
/// stateful modules. Created by `inference_model::lane()`. Movable, not copyable. One thread at a
/// time may use it.
template <model_element E, resolved_module M, shape... In>
class lane {
 public:
  /// Gives the state of stateful modules (`lstm<.., stateful<1>>`) its initial value, as at the
  /// begin of a sequence. O(state); no allocation.
  void reset() { own().reset(); }
  /// The bytes of activations and of what modules need for one call.
  dim_t workspace_bytes() const { return own().workspace_bytes(); }

 private:
  friend inference_model<E, M, In...>;
  using memory = detail::lane_memory<E, M, In...>;

  struct ends {
    bool owns = true;
    void operator()(memory* m) const {
      if (owns)
        delete m;
      else
        m->~memory();
    }
  };

  explicit lane(std::unique_ptr<memory, ends> m) : memory_{std::move(m)} {}

  /// Throws state_error if the lane was moved from.
  memory& own() const {
    if (memory_ == nullptr) [[unlikely]]
      detail::refuse_moved_from("lane");
    return *memory_;
  }

  std::unique_ptr<memory, ends> memory_;
};

namespace detail {
/// Throws shape_error if one is negative or dynamic.
[[gnu::cold]] inline void check_lane_extents(const shape_list& inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i)
    for (std::size_t d = 0; d < inputs[i].rank(); ++d)
      if (inputs[i][d] < 0)
        throw_error(shape_error(diagnostic{
            "a lane expects the extents of its largest inputs, got {input}", 0, 0, inputs[i]}));
}
}  // namespace detail

/// A network for inference, created by `freeze`: its parameters, shared by lanes, each of which one
/// thread calls it with: `net(lane, x)`. Calls are const and may run at the same time, each with
/// its own lane; they give the bits that the model gives in evaluation mode, or, if it has batch
/// norms or scalings that are folded into weights, its numbers to rounding. Copies share the
/// parameters, which live as long as a copy or a lane.
///
/// A call with inputs of the extents that the lane was made for allocates nothing, takes no lock
/// and makes no system call, once the calling thread has called prepare_thread() and if no thread
/// number above 1 is set. It throws only if a module checks values (indices, lengths).
template <model_element E, resolved_module M, shape... In>
class inference_model {
  using trained = model<E, M, In...>;
  using weights = detail::frozen_weights<E, M, sizeof...(In)>;
  using memory = detail::lane_memory<E, M, In...>;
  using arguments = detail::call_arguments<trained>;

 public:
  using value_type = element_of<E>;
  using module_type = M;
  using lane_type = ikebana::lane<E, M, In...>;
  using output_view = typename trained::output_view;
  static constexpr std::size_t input_count = sizeof...(In);
  static constexpr shape_list input_shapes{In...};

  explicit inference_model(std::shared_ptr<weights> made) : weights_{packed(std::move(made))} {}
  /// Of weights that outlive it and that `freeze` has compared with the network.
  inference_model(const M& module, const detail::embedded_view<value_type>& given)
      : weights_{std::make_shared<weights>(module, trained::lowered(), given)} {}

  /// The error of a call with arguments of these types, if any; a constant expression.
  template <class... X>
  static constexpr diagnostic check_call() {
    return trained::template check_call<X...>();
  }
  template <class... X>
  static constexpr bool takes = detail::accepts<check_call<X...>>;

  /// The output for the inputs x: memory of the lane, valid until its next call. A shape mismatch
  /// is a compile error if the compiler knows it, else a shape_error thrown before anything has
  /// changed. Throws state_error if the lane belongs to another inference_model or was moved from.
  template <class... X>
  requires takes<X...> output_view operator()(lane_type& l, const X&... x) const {
    memory& m = l.own();
    if (!m.is_of(weights_)) [[unlikely]]
      throw_error(state_error("the lane belongs to another inference model"));
    if constexpr (!takes_one_shape<X...>) m.prepare_for(arguments::shapes(x...));
    m.run(arguments::data(x...));
    return output(m, std::make_index_sequence<trained::output_count>{});
  }
  template <class... X>
  requires(!takes<X...>) auto operator()(lane_type&, const X&...) const
      -> decltype(detail::refuse<check_call<X...>>());
  template <class... X>
  auto operator()(const X&...) const
      -> decltype(detail::refuse_for<detail::misuse::inference_without_a_lane, X...>());

  /// A lane for inputs of the declared extents, or of `inputs`, the largest that it will see, if
  /// some are dynamic (else its first call allocates). Allocates. Throws shape_error if `inputs` do
  /// not match or have no extent, `dynamic`.
  template <std::same_as<shape>... Extents>
  requires(sizeof...(Extents) == 0 || sizeof...(Extents) == sizeof...(In)) lane_type
      lane(const Extents&... inputs)
  const { return lane_type(prepared({new memory(own(), {}), {}}, inputs...)); }

  /// The same in the caller's memory, which must outlive the lane: of `lane_bytes(inputs...)`
  /// bytes. Does not allocate. Throws error if it is too small.
  template <std::same_as<shape>... Extents>
  requires(sizeof...(Extents) == 0 || sizeof...(Extents) == sizeof...(In)) lane_type
      lane(std::span<std::byte> given, const Extents&... inputs)
  const {
    void* at = given.data();
    std::size_t room = given.size();
    if (given.data() == nullptr || std::align(alignof(memory), sizeof(memory), at, room) == nullptr)
      memory::refuse_room();
    auto* const made = new (at)
        memory(own(), {static_cast<std::byte*>(at) + sizeof(memory), room - sizeof(memory)});
    return lane_type(prepared({made, {false}}, inputs...));
  }

  /// The bytes of caller's memory that a lane for these inputs takes. Allocates.
  template <std::same_as<shape>... Extents>
  requires(sizeof...(Extents) == 0 || sizeof...(Extents) == sizeof...(In)) std::size_t
      lane_bytes(const Extents&... inputs)
  const {
    const lane_type l = lane(inputs...);
    return sizeof(memory) + alignof(memory) + l.memory_->bytes_needed();
  }

  const M& module() const { return own()->module; }
  /// The bytes of its own parameters and persistent buffers, and of what is packed of them.
  dim_t weight_bytes() const {
    return (own()->own_parameters.size() + own()->packed_layers.size()) *
               static_cast<dim_t>(sizeof(value_type)) +
           own()->persistent_bytes;
  }
  /// All parameters as one array, in the order of `model::parameters()` of this module or of the
  /// embedded weights.
  std::span<const value_type> parameters() const { return own()->parameters; }
  /// The parameters and persistent buffers by path, as views that live as long as a copy of this
  /// network or a lane. It tells whether something is folded into them: `is_folded()`. Allocates
  /// the table.
  [[gnu::cold]] state_view state() const {
    state_view dict;
    const auto& p = own()->lowered;
    for (std::size_t i = 0; i < p.sizes.parameters; ++i)
      dict.add_view(p.path(p.parameters[i]).view(), dtype_of<value_type>,
                    p.parameters[i].spec.extents, own()->parameter_table[i]);
    for (std::size_t b = 0; b < p.sizes.buffers; ++b)
      if (const buffer_spec& spec = p.buffers[b].spec; spec.persistent)
        dict.add_view(p.path(p.buffers[b]).view(),
                      spec.follows_model ? dtype_of<value_type> : spec.type, spec.extents,
                      own()->buffer_table[b]);
    dict.set_folded(own()->is_folded);
    return dict;
  }

 private:
  using memory_pointer = std::unique_ptr<memory, typename lane_type::ends>;

  template <class... X>
  static constexpr bool takes_one_shape =
      (In.is_static() && ... && true) &&
      (detail::argument_tensor<X>::type::static_shape.is_static() && ... && true);

  static std::shared_ptr<const weights> packed(std::shared_ptr<weights> made) {
    if constexpr (weights::tables::has_layers) {
      memory m(made, {});
      shape_list one;
      for (std::size_t i = 0; i < input_count; ++i) {
        shape each = made->lowered.values[i];
        for (std::size_t d = 0; d < each.rank(); ++d)
          if (each[d] < 0) each[d] = 1;
        one.push_back(each);
      }
      m.prepare(one);
      m.pack_layers(*made);
    }
    return made;
  }

  template <class... Extents>
  static memory_pointer prepared(memory_pointer m, const Extents&... inputs) {
    if constexpr (sizeof...(Extents) > 0) {
      const shape_list given{inputs...};
      detail::check_lane_extents(given);
      m->prepare_for(given);
    }
    if constexpr (sizeof...(Extents) == 0 && (In.is_static() && ... && true))
      m->prepare(shape_list{In...});
    return m;
  }

  template <std::size_t... I>
  static output_view output(const memory& m, std::index_sequence<I...>) {
    const auto& t = m.state();
    const auto view = [&]<std::size_t O>(std::integral_constant<std::size_t, O>) {
      constexpr shape s = trained::lowered().output(O);
      const auto v = t.lowered.outputs[O];
      if constexpr (s.is_static())
        return tensor_view<const value_type, s>(t.values[v]);
      else
        return tensor_view<const value_type, s>(t.values[v], t.current.values[v]);
    };
    return output_view(view(std::integral_constant<std::size_t, I>{})...);
  }

  /// Throws state_error if the network was moved from.
  const std::shared_ptr<const weights>& own() const {
    if (weights_ == nullptr) [[unlikely]]
      detail::refuse_moved_from("inference model");
    return weights_;
  }

  std::shared_ptr<const weights> weights_;
};

/// Prints it as its module. Allocates.
template <class Traits, model_element E, resolved_module M, shape... In>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& stream,
                                             const inference_model<E, M, In...>& net) {
  return stream << to_string(net.module());
}

namespace detail {

template <class E, class M, shape... In, class From>
auto freeze_as(const model<E, M, In...>*, const From& from) {
  using folds = folding<M, In...>;
  using module = typename folds::type;
  return inference_model<E, module, In...>(
      std::make_shared<frozen_weights<E, module, sizeof...(In)>>(from, folds{}));
}

}  // namespace detail

/// Makes an inference_model of a model as it is now: without gradients and optimizer state, in
/// evaluation mode, with a memory plan in which values live only until their last reader. Its
/// module is another: batch norms and scalings (`x * 2`, a parameter for each channel,
/// standard_scaler) right after or before a linear module or a convolution are part of the latter's
/// weights, weights that weight_norm and spectral_norm compute are plain ones, and nothing is
/// dropped or frozen. Folding is stable: it changes results by no more than a rounding of weights,
/// biases and inputs does. Layers that run in one call have their weights packed once, for
/// all lanes. What depends on parameters and shapes alone, a mask or a product of parameters, is
/// computed once for a lane. The model is unchanged and not needed afterwards. Throws state_error
/// if a function chooses the alternative of a `choose`. O(parameters); allocates.
template <model_element E, resolved_module M, shape... In>
auto freeze(const model<E, M, In...>& m) {
  return detail::freeze_as(&m, m);
}
/// Of the model of a replica, on one rank.
template <detail::replica Replica>
auto freeze(const Replica& r) {
  return detail::freeze_as(detail::model_of(r), r);
}

/// Makes an inference_model for inputs of the shapes In of a module and of weights that
/// tools/embed has written as a header: `freeze<amplifier_weights, shape{1, 1, 1}>(amplifier)`. It
/// reads them where they are, in read-only memory, and keeps no copy: layers run one by one, with
/// the results of a frozen model to rounding. That each parameter and buffer has its tensor, and
/// each tensor its use, is checked by the compiler. Weights of 16 bits and bytes make the network
/// that `quantize` makes (`<ikebana/deploy/embedded_quantized.hpp>`). O(tensors); allocates tables.
template <embedded_weights Weights, shape... In, any_module M>
requires(detail::accepts<detail::check_embedded<Weights, M, In...>>) auto freeze(const M& m) {
  using form = detail::embedded_form<Weights, M, In...>;
  using T = typename Weights::value_type;
  return inference_model<T, typename form::type, In...>(
      form::of(m), detail::embedded_view<T>::template of<Weights>());
}
template <embedded_weights Weights, shape... In, any_module M>
requires(!detail::accepts<detail::check_embedded<Weights, M, In...>>) auto freeze(const M&)
    -> decltype(detail::refuse<detail::check_embedded<Weights, M, In...>>());
template <class X>
requires(!detail::freezable<X>) auto freeze(const X&)
    -> decltype(detail::refuse_for<detail::misuse::freeze_takes_an_initialized_model, X>());

}  // namespace ikebana
