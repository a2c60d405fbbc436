#pragma once

#include <algorithm>
#include <array>
#include <boost/hana/at.hpp>
#include <boost/hana/tuple.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/calls/loss_memory.hpp"
#include "ikebana/model/calls/optimizer_check.hpp"
#include "ikebana/model/calls/training_refusals.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/model/passes/gradient_presence.hpp"
#include "ikebana/module/alike.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/unknown_path.hpp"

namespace ikebana {

namespace detail {

/// A module under its path in the whole network, so that paths, and what follows from them, are
/// those of the whole.
template <class Child>
struct part_module {
  static constexpr std::string_view kind = "part";
  using child_type = typename unwrap_named<Child>::type;
  boost::hana::tuple<Child> children{};

  static constexpr std::size_t inputs = Child::name_type::inputs;
  static constexpr auto wiring() {
    wiring_table<1> w;
    w.inputs = static_cast<int>(inputs);
    w.steps[0].input_count = inputs;
    for (std::size_t i = 0; i < inputs; ++i) w.steps[0].inputs[i] = static_cast<int>(i);
    w.output_count = output_count<child_type>();
    for (std::size_t o = 0; o < w.output_count; ++o) w.outputs[o] = static_cast<int>(inputs + o);
    return w;
  }
  template <class C>
  static constexpr auto rebind(C c) {
    return part_module<C>{boost::hana::tuple<C>{std::move(c)}};
  }
};

/// The name of the child of a part: a path, and the number of values that the module takes.
template <literal Path, std::size_t Inputs>
struct path_of_part {
  static constexpr std::size_t inputs = Inputs;
  static constexpr auto text = Path;
  static constexpr const char* c_str() { return text.data; }
};

/// The index among numbered_children_of<M> of the first name of a path; their number if there is
/// none.
template <composite_module M>
constexpr std::size_t find_child(std::string_view name) {
  constexpr const auto& numbered = numbered_children_of<M>;
  return []<class... C>(const boost::hana::tuple<C...>*, std::string_view wanted) {
    const char* const names[] = {name_of<C>()..., nullptr};
    const bool has_name[] = {is_named<C>..., false};
    std::size_t n = 0;
    for (; n < numbered.size(); ++n) {
      const auto c = static_cast<std::size_t>(numbered[n].child);
      if (has_name[c] ? std::string_view{names[c]} == wanted
                      : path_text{}.append(static_cast<dim_t>(n)).view() == wanted)
        break;
    }
    return n;
  }(static_cast<const decltype(M::children)*>(nullptr), name);
}

constexpr std::string_view first_name(std::string_view path) {
  // Not by find: under -fsanitize=undefined, it is no constant expression for g++.
  std::size_t n = 0;
  while (n < path.size() && path[n] != '.') ++n;
  return path.substr(0, n);
}

/// The module of m at the path that is Path without its first `From` characters.
template <literal Path, std::size_t From = 0, class M>
constexpr const auto& module_at(const M& m) {
  constexpr std::string_view rest = std::string_view{Path.data, Path.size()}.substr(From);
  constexpr std::string_view name = first_name(rest);
  constexpr auto child = numbered_children_of<M>[find_child<M>(name)];
  const auto& found =
      part_of(boost::hana::at_c<static_cast<std::size_t>(child.child)>(m.children), child.part);
  if constexpr (name.size() == rest.size())
    return found;
  else
    return module_at<Path, From + name.size() + 1>(found);
}

/// The shapes of the inputs of the first call of the module at a path.
template <program_sizes N, std::size_t Calls>
struct call_finder {
  program<N> lowered{};
  std::array<program_call, Calls + 1> calls{};

  template <any_module M>
  constexpr shape_list find(const M& m, const shape_list& inputs, std::string_view path) {
    lower_into(lowered, m, inputs, calls.data());
    shape_list found;
    for (std::size_t c = 0; c < Calls; ++c) {
      if (!(scope_path(lowered.scopes.data(), calls[c].scope).view() == path)) continue;
      for (std::size_t i = 0; i < calls[c].inputs.count; ++i)
        found.push_back(lowered.values[static_cast<std::size_t>(calls[c].inputs.ids[i])]);
      break;
    }
    return found;
  }
};
template <any_module M, std::size_t Inputs>
using call_finder_of = call_finder<sizes_of<M>(Inputs), count_calls<M>(Inputs)>;

template <any_module M, literal Path, shape... In>
inline constexpr shape_list part_inputs = [] {
  call_finder_of<M, sizeof...(In)> f;
  return f.find(M{}, shape_list{In...}, std::string_view{Path.data, Path.size()});
}();

/// Whether M is made by `methods` (compose/methods.hpp).
template <class M>
inline constexpr bool is_methods_module = requires {
  M::is_methods;
};

/// The index of a method; the number of methods if there is none.
template <class M, literal Path>
constexpr std::size_t method_at() {
  std::size_t k = 0;
  if constexpr (is_methods_module<M>)
    while (k < M::table::count && M::table::names[k] != std::string_view{Path.data, Path.size()})
      ++k;
  return k;
}
template <class M, literal Path>
constexpr bool has_method() {
  if constexpr (is_methods_module<M>)
    return method_at<M, Path>() < M::table::count;
  else
    return false;
}

/// The names of methods and the paths of modules, for refusals.
template <any_module M>
struct part_paths : module_paths<M> {
  static constexpr const char* what = "part";
  static constexpr std::size_t methods = [] {
    if constexpr (is_methods_module<M>) return M::table::count;
    return std::size_t{0};
  }();
  static constexpr std::size_t count = methods + module_paths<M>::count;
  static constexpr path_text path(std::size_t i) {
    if constexpr (is_methods_module<M>)
      if (i < methods) return path_text{M::table::names[i]};
    return module_paths<M>::path(i - methods);
  }
};

template <class M, literal Path>
constexpr bool has_part() {
  return has_method<M, Path>() ||
         (Path.size() > 0 && has_module<M>(std::string_view{Path.data, Path.size()}));
}

/// The network of a part, and the shapes of its inputs.
template <class M, literal Path, shape... In>
struct part_of_network {
  static constexpr bool is_method = has_method<M, Path>();
  static constexpr auto module(const M& m) {
    if constexpr (is_method) {
      return m.template method<method_at<M, Path>()>();
    } else {
      const auto& child = module_at<Path>(m);
      using C = std::remove_cvref_t<decltype(child)>;
      using N = named<path_of_part<Path, part_inputs<M, Path, In...>.size()>, C>;
      return part_module<N>{boost::hana::tuple<N>{N{child}}};
    }
  }
  using module_type = decltype(module(std::declval<const M&>()));

  static constexpr shape_list inputs = [] {
    if constexpr (is_method) {
      constexpr std::size_t k = method_at<M, Path>();
      const shape_list all{In...};
      shape_list own;
      for (std::size_t i = M::table::begins[k].input; i < M::table::begins[k + 1].input; ++i)
        own.push_back(all[i]);
      return own;
    } else {
      return part_inputs<M, Path, In...>;
    }
  }();
  /// The same with extents that only run time knows.
  static shape_list bound_inputs(const M& m, const shape_list& all) {
    if constexpr (is_method) {
      constexpr std::size_t k = method_at<M, Path>();
      shape_list own;
      for (std::size_t i = M::table::begins[k].input; i < M::table::begins[k + 1].input; ++i)
        own.push_back(all[i]);
      return own;
    } else {
      const auto f = std::make_unique<call_finder_of<M, sizeof...(In)>>();
      return f->find(m, all, std::string_view{Path.data, Path.size()});
    }
  }

  template <class E, std::size_t... I>
  static auto model_type(std::index_sequence<I...>) -> model<E, module_type, inputs[I]...>;
  template <class E>
  using model_of = decltype(model_type<E>(std::make_index_sequence<inputs.size()>{}));
};

/// By parameter: its index in a gradient_presence, which is in memory order.
template <class X = void>
std::vector<dependent<std::size_t, X>> places_in_memory(const program_view& p,
                                                        const dim_t* offsets) {
  std::vector<dependent<std::size_t, X>> order(p.n.parameters), places(p.n.parameters);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return offsets[a] < offsets[b]; });
  for (std::size_t i = 0; i < order.size(); ++i) places[order[i]] = i;
  return places;
}

/// A part with the memory of its passes. Its parameters, their gradients and its buffers are those
/// of the whole.
template <class Network>
class part_network : public loss_memory, public Network {
  using T = typename Network::value_type;

 public:
  using Network::engine_;
  using Network::run_loss;

  /// `engine` is that of the whole.
  template <class Engine>
  part_network(const typename Network::module_type& m, const Engine& whole,
               const shape_list& inputs, std::uint32_t stream)
      : Network(m, whole.network.seed, inputs), stream_{stream} {
    auto& own = engine_.tables();
    const auto& all = whole.tables();
    const program_view &p = own.lowered, &w = all.lowered;
    const auto places = places_in_memory<T>(w, all.offsets);
    std::vector<dependent<parameter_range, T>> ranges(w.n.parameters);
    for (std::size_t i = 0; i < ranges.size(); ++i) ranges[places[i]].begin = all.offsets[i];
    for (std::size_t i = 0; i < ranges.size(); ++i)
      ranges[i].end =
          i + 1 < ranges.size() ? ranges[i + 1].begin : whole.network.memory.parameters.size();
    for (const parameter_range& r : ranges) presence_.add(r);
    own_places_ = places_in_memory<T>(p, own.offsets);
    places_.resize(p.n.parameters);
    for (std::size_t l = 0; l < p.n.leaves; ++l) {
      const program_leaf& leaf = p.leaves[l];
      if (leaf.parameter_count + leaf.buffer_count == 0) continue;
      std::size_t k = 0;
      while (w.leaves[k].path_hash != leaf.path_hash || w.leaves[k].kind != leaf.kind) ++k;
      const program_leaf& same = w.leaves[k];
      for (std::size_t i = 0; i < leaf.parameter_count; ++i) {
        const auto at = static_cast<std::size_t>(leaf.first_parameter) + i,
                   from = static_cast<std::size_t>(same.first_parameter) + i;
        own.parameters[at] = all.parameters[from];
        own.gradients[at] = all.gradients[from];
        places_[at] = places[from];
      }
      for (std::size_t i = 0; i < leaf.buffer_count; ++i)
        own.buffers[static_cast<std::size_t>(leaf.first_buffer) + i] =
            all.buffers[static_cast<std::size_t>(same.first_buffer) + i];
    }
    auto& memory = engine_.network.memory;
    memory.parameters = {};
    memory.gradients = {};
    memory.buffers = {};
    engine_.network.step = whole.network.step;
  }

  /// Takes over the modes of the whole, before a forward.
  template <class Engine>
  void follow(const Engine& whole) {
    auto& network = engine_.network;
    engine_.stamp = whole.stamp;
    network.seed = whole.network.seed;
    network.stream = whole.network.stream ^ stream_;
    network.training = whole.network.training;
    network.fuses = whole.network.fuses;
    using own_engine = std::remove_cvref_t<decltype(engine_)>;
    if constexpr (own_engine::has_choices) {
      auto& own = engine_.tables();
      const auto& all = whole.tables();
      for (std::size_t c = 0; c < own.lowered.n.choices; ++c) {
        std::size_t k = 0;
        while (!(all.lowered.path(all.lowered.choices[k]).view() ==
                 own.lowered.path(own.lowered.choices[c]).view()))
          ++k;
        own.partial.set[c] = all.partial.set[k];
        own.partial.policies[c] = all.partial.policies[k];
      }
    }
  }

  /// Sets the gradients of the part to zero, and makes them absent.
  void zero_gradients(gradient_presence* of_whole) {
    T* const* const gradients = engine_.tables().gradients;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      // Null where the whole does not train it.
      if (gradients[i] != nullptr)
        std::fill_n(gradients[i], engine_.tables().lowered.parameters[i].spec.extents.numel(),
                    T{0});
      presence_.set(places_[i], false);
      if (of_whole != nullptr) of_whole->set(places_[i], false);
    }
  }
  /// Before a backward: gradients are added to those of the whole, which are zero where absent.
  void begin_backward() {
    if (gradient_presence* const q = Network::presence(); q != nullptr)
      for (std::size_t i = 0; i < q->size(); ++i) q->set(i);
  }
  /// After it: marks what it reached.
  void end_backward(gradient_presence* of_whole) {
    const gradient_presence* const q = Network::presence();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (q != nullptr && !q->reached(own_places_[i])) continue;
      presence_.reach(places_[i]);
      if (of_whole != nullptr) of_whole->reach(places_[i]);
    }
  }

  gradient_presence& presence_in_whole() { return presence_; }

 private:
  std::uint32_t stream_;
  dependent<gradient_presence, T> presence_{};  ///< Of all parameters of the whole.
  std::vector<dependent<std::size_t, T>> places_, own_places_;
};

/// Access to what a model does not show.
struct part_access {
  template <class Model>
  static auto& engine(Model& m) {
    return m.engine_;
  }
  template <class Model>
  static auto& kept(Model& m) {
    return m.losses_;
  }
};

}  // namespace detail

/// A module of a model, or one of its methods, with calls and training of its own: the result of
/// `model.part<"encoder">()`. Parameters, gradients, buffers and modes are those of the model, and
/// so must be its addresses: a part is a reference to the model, to which it adds the memory of its
/// passes, which the model keeps. So the passes of several parts do not disturb each other: after a
/// forward of each, their backwards may follow in any order. Random numbers are drawn as in the
/// model, by paths, but steps are counted by part. Hooks of the model do not run in its parts.
template <class Model, class Network>
class model_part {
  using network = detail::part_network<Network>;

 public:
  using value_type = typename Model::value_type;
  using module_type = typename Network::module_type;
  static constexpr std::size_t input_count = Network::input_count;
  static constexpr std::size_t output_count = Network::output_count;
  using output_view = typename Network::output_view;

  model_part(Model& whole, network& own) : whole_{&whole}, own_{&own} {}

  /// The output of the part for these inputs, as that of a model.
  template <class... X>
  requires(requires(Network& n, X&&... x) {
    { n(std::forward<X>(x)...) } -> std::same_as<output_view>;
  }) output_view
  operator()(X&&... x) const {
    own_->follow(detail::part_access::engine(*whole_));
    return static_cast<Network&>(*own_)(std::forward<X>(x)...);
  }
  template <class... X>
  requires(!Network::template takes<std::remove_cvref_t<X>...>) auto operator()(X&&...) const
      -> decltype(detail::refuse<Network::template check_call<std::remove_cvref_t<X>...>>());

  /// The output of its last forward.
  output_view output() const { return own_->output(); }

  /// Adds the gradients of its parameters for its last forward to those of the model, and writes
  /// those of the inputs that are numbers, if given: the gradient with respect to an inner value of
  /// the model is that of the input of a part.
  template <class G, class... X>
  requires(detail::accepts_backward<Network, G, X...>) void backward(const G& output_gradient,
                                                                     X&&... input_gradients) const {
    own_->begin_backward();
    static_cast<Network&>(*own_).backward(output_gradient, std::forward<X>(input_gradients)...);
    own_->end_backward(whole_->presence());
  }
  template <class... A>
  requires(!detail::accepts_backward<Network, A...>) auto backward(A&&...) const
      -> decltype(detail::refuse_backward<Network, A...>());

  /// Forward, loss and backward. Adds to the gradients. Returns the loss.
  template <class X, class Y, class Loss>
  requires(detail::accepts_loss_backward<Network, X, Y, Loss>) value_type
      loss_backward(const X& x, const Y& target, const Loss& loss)
  const {
    return run(x, target, loss, [] {});
  }
  template <class... A>
  requires(!detail::accepts_loss_backward<Network, A...>) auto loss_backward(A&&...) const
      -> decltype(detail::refuse_loss_backward<Network, A...>());

  /// One training step of the part. The optimizer is one of this part, which updates no other
  /// parameters; that of the whole model will do if it knows that some have no gradient, as that of
  /// `methods` does. Throws state_error, before anything has changed, for any other.
  template <class X, class Y, class Loss, class Optimizer>
  requires(detail::accepts_train_step<Network, X, Y, Loss, Optimizer&>) value_type
      train_step(const X& x, const Y& target, const Loss& loss, Optimizer& optimizer)
  const {
    bool of_whole = false;
    if constexpr (requires { optimizer.updates(*this); })
      if (!optimizer.updates(*this)) {
        of_whole = Model::may_lack_gradients && optimizer.updates(*whole_);
        if (!of_whole) detail::refuse_optimizer("train_step of a part");
      }
    const value_type value = run(x, target, loss, [&] {
      if (of_whole) whole_->zero_grad();
      zero_grad();
    });
    optimizer.step();
    return value;
  }
  template <class... A>
  requires(!detail::accepts_train_step<Network, A...>) auto train_step(A&&...) const
      -> decltype(detail::refuse_train_step<Network, A...>());

  /// Sets the gradients of its parameters to zero.
  void zero_grad() const { own_->zero_gradients(whole_->presence()); }

  /// The number of its forwards in training, which its random numbers depend on.
  std::uint64_t random_step() const { return own_->random_step(); }
  void set_random_step(std::uint64_t step) const { own_->set_random_step(step); }

  // What an optimizer needs: all parameters of the model, of which those of the part are present.
  static constexpr const auto& lowered() { return Model::lowered(); }
  std::span<value_type> parameters() { return whole_->parameters(); }
  std::span<const value_type> parameters() const { return std::as_const(*whole_).parameters(); }
  std::span<value_type> gradients() { return whole_->gradients(); }
  std::span<const value_type> gradients() const { return std::as_const(*whole_).gradients(); }
  const auto& layout() const { return whole_->layout(); }
  gradient_presence* presence() { return &own_->presence_in_whole(); }
  const gradient_presence* presence() const { return &own_->presence_in_whole(); }
  auto lifetime() { return whole_->lifetime(); }
  void parameters_changed() { whole_->parameters_changed(); }

 private:
  template <class Begin>
  struct listener {
    network& own;
    Begin begin_step;
    void begin() {
      begin_step();
      own.begin_backward();
    }
    void operator()(dim_t) const {}
  };

  template <class X, class Y, class Loss, class Begin>
  value_type run(const X& x, const Y& target, const Loss& loss, Begin begin) const {
    own_->follow(detail::part_access::engine(*whole_));
    const value_type value =
        own_->run_loss(x, target, detail::as_loss(loss), true, listener<Begin>{*own_, begin});
    own_->end_backward(whole_->presence());
    return value;
  }

  Model* whole_;
  network* own_;
};

namespace detail {

template <literal Path, class E, class M, shape... In>
struct part_maker<Path, model<E, M, In...>> {
  static constexpr bool exists = has_part<M, Path>();

  static auto make(model<E, M, In...>& whole) {
    using part = part_of_network<M, Path, In...>;
    using network = part_network<typename part::template model_of<E>>;
    std::unique_ptr<loss_memory>* at = &part_access::kept(whole);
    for (; *at != nullptr; at = &(*at)->next)
      if ((*at)->type == &mark) break;
    if (*at == nullptr) {
      const auto& engine = part_access::engine(whole);
      const std::uint64_t hash = hash_path({Path.data, Path.size()}, 0);
      auto made = std::make_unique<network>(
          part::module(whole.module()), engine,
          part::bound_inputs(whole.module(), engine.tables().bound_inputs),
          static_cast<std::uint32_t>(hash >> 32) << 16);
      made->type = &mark;
      *at = std::move(made);
    }
    return model_part<model<E, M, In...>, typename part::template model_of<E>>(
        whole, static_cast<network&>(**at));
  }

  static auto refuse() -> decltype(declared(
      find_path_refusal<path_text{std::string_view{Path.data, Path.size()}}, part_paths<M>>()));

 private:
  static constexpr char mark{};
};

}  // namespace detail
}  // namespace ikebana
