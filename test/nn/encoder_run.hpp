#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "layers.hpp"

/// The parts of a transformer as models, compared with PyTorch's records.

namespace ike = ikebana;
using ike::dim_t;
using ike::dynamic;
using ike::lazy;
using ike::shape;

template <dim_t D, dim_t Heads, class... Options>
using block = ike::transformer_encoder_layer<D, Heads, 5, Options...>;
using gelu = ike::activation<ike::gelu<>>;
using first = ike::norm_first<true>;
using batched = ike::batch_first<true>;
using padded = ike::key_padding_mask<true>;
using masked = ike::attn_mask<ike::mask_kind::boolean>;
inline constexpr ike::transformer_settings no_dropout{.dropout = 0};

/// The data of a model of any type.
template <class T>
struct recorded_model {
  ike::state_view state;
  std::vector<const T*> gradients;  ///< Of the entries of `state`.

  template <class Net>
  explicit recorded_model(const Net& net) : state{ike::get_state_dict(net)} {
    const auto& p = net.current_program();
    for (const ike::state_dict::entry& e : state)
      for (std::size_t i = 0; i < p.all_parameters().size(); ++i)
        if (p.path(p.parameters[i]).view() == e.name)
          gradients.push_back(net.gradients().data() + net.layout().offsets[i]);
  }

  static const ike::state_dict::entry& at(const std::string& name, const std::string& tensor) {
    return recorded<T>("layers_attention").at(name + "/" + tensor);
  }
  /// Writes to the model's memory, which the views show.
  void fill(const std::string& name) const {
    for (const ike::state_dict::entry& e : state) {
      REQUIRE(e.extents == at(name, e.name).extents);
      copy_bytes(const_cast<std::byte*>(e.bytes.data()), at(name, e.name));
    }
    std::size_t states = 0;
    for (const ike::state_dict::entry& e : recorded<T>("layers_attention"))
      states += e.name.starts_with(name + "/grad.");
    CHECK(states == state.size());
  }
  void check(const std::string& name, const T* y, const T* dx, const std::string& where) const {
    check_close<T>(y, at(name, "y0"), name + " y0" + where);
    check_close<T>(dx, at(name, "gx0"), name + " gx0" + where);
    for (std::size_t i = 0; i < state.size(); ++i)
      check_close<T>(gradients[i], at(name, "grad." + state[i].name),
                     name + " grad." + state[i].name + where);
  }
};

template <shape Mask>
ike::tensor<bool, Mask> mask_of(const std::string& name, std::size_t input) {
  ike::tensor<bool, Mask> m;
  const auto& from = recorded_model<float>::at(name, "x" + std::to_string(input)).bytes;
  for (dim_t e = 0; e < m.size(); ++e) m[e] = from[static_cast<std::size_t>(e)] != std::byte{0};
  return m;
}

template <class T, shape X, shape... Masks, class M, std::size_t... I>
void compare_as(const std::string& name, const M& m, std::index_sequence<I...>) {
  auto net = ike::initialize<T, X, Masks...>(m, ike::seed{1});
  const recorded_model<T> run(net);
  run.fill(name);
  ike::tensor<T, X> x, dx, dy;
  copy_bytes(x.data(), run.at(name, "x0"));
  copy_bytes(dy.data(), run.at(name, "gy0"));
  const std::tuple<ike::tensor<bool, Masks>...> masks{mask_of<Masks>(name, I + 1)...};
  for_each_instruction_set([&](const std::string& where) {
    net.zero_grad();
    const auto y = net(x, std::get<I>(masks)...);
    net.backward(dy, dx);
    run.check(name, y.data(), dx.data(), where);
  });
}

/// Runs m as PyTorch ran the case, in double, on every instruction set.
template <shape... In, class M>
void compare_network(const std::string& name, const M& m) {
  compares("layers_attention", name);
  compare_as<double, In...>(name, m, std::make_index_sequence<sizeof...(In) - 1>{});
}
/// The same in float. Each type and precision costs a second of compile time.
template <shape... In, class M>
void compare_in_float(const std::string& name, const M& m) {
  compare_as<float, In...>(name, m, std::make_index_sequence<sizeof...(In) - 1>{});
}

template <shape In, class M>
void check_gradient_of(const M& m) {
  const auto r = ike::gradient_check(m, ike::uniform<double, In>(ike::seed{11}));
  CHECK_MESSAGE(r.largest < 1e-7, r.where);
}

inline std::vector<std::string> names_of(const ike::state_dict& state) {
  std::vector<std::string> names;
  for (const ike::state_dict::entry& e : state) names.push_back(e.name);
  return names;
}

/// Whether two models have the same parameters, by name and bit by bit.
inline bool equal(const ike::state_dict& a, const ike::state_dict& b) {
  if (names_of(a) != names_of(b)) return false;
  for (const ike::state_dict::entry& e : a)
    if (e.bytes.size() != b.at(e.name).bytes.size() ||
        std::memcmp(e.bytes.data(), b.at(e.name).bytes.data(), e.bytes.size()) != 0)
      return false;
  return true;
}
