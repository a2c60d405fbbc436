#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "ikebana/core/tensor.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/model/state.hpp"
#include "test/support/load_recorded.hpp"

// The results of PyTorch's networks with these state dicts (test/data/README.md, "networks").

namespace recorded_network {

namespace ike = ikebana;

template <class T>
const char* suffix = std::is_same_v<T, float> ? "_f32" : "_f64";

/// The recorded results of networks of T: the entries `<network>/<key>`.
template <class T>
const ike::state_dict& recorded() {
  static const ike::state_dict dict = load_recorded(std::string{"networks"} + suffix<T>);
  return dict;
}

/// The weights as saved by PyTorch, in float.
inline ike::state_dict saved(std::string_view network) {
  return load_recorded(std::string{network} + "_state_dict_f32");
}

/// |a - b| <= tolerance max|b| over the tensor; 1e-5 in float, 1e-11 in double.
template <class T>
void check_close(const T* a, const ike::state_dict::entry& b) {
  constexpr double tolerance = std::is_same_v<T, float> ? 1e-5 : 1e-11;
  REQUIRE_MESSAGE(b.type == ike::dtype_of<T>, b.name);
  const T* expected = reinterpret_cast<const T*>(b.bytes.data());
  const std::size_t n = b.bytes.size() / sizeof(T);
  double most = 0, worst = 0;
  for (std::size_t i = 0; i < n; ++i) {
    most = std::max(most, std::abs(static_cast<double>(expected[i])));
    const double apart = std::abs(static_cast<double>(a[i]) - static_cast<double>(expected[i]));
    if (!(apart <= worst) && !std::isnan(worst)) worst = apart;  // NaN is the worst.
  }
  CHECK_MESSAGE(worst <= tolerance * most, b.name << ": " << worst << " of " << most);
}

/// One network's part of the record.
template <class T>
struct record {
  std::string network;

  const ike::state_dict::entry& at(const std::string& key) const {
    return recorded<T>().at(network + "/" + key);
  }
  template <class U, ike::shape S>
  ike::tensor_view<const U, S> tensor(const std::string& key) const {
    return at(key).template view<U, S>();
  }
  /// Bytes as the network's inputs.
  template <ike::shape S>
  ike::tensor<T, S> pixels() const {
    const auto bytes = tensor<std::uint8_t, S>("pixels");
    ike::tensor<T, S> x(bytes.extents());
    for (ike::dim_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(bytes[i]) / 64 - 2;
    return x;
  }

  void check(const std::string& key, const T* is) const { check_close(is, at(key)); }
  template <class View>
  void check(const std::string& key, const View& is) const {
    REQUIRE(is.extents() == at(key).extents);
    check_close(is.data(), at(key));
  }

  /// All gradients of the model, with PyTorch's shapes and names, and none left out.
  template <class Model>
  void check_gradients(const Model& model, const std::string& prefix = "grad.") const {
    const auto& p = model.current_program();
    const std::string all = network + "/" + prefix;
    std::size_t expected = 0;
    for (const auto& e : recorded<T>()) expected += e.name.starts_with(all);
    CHECK(expected == p.all_parameters().size());
    for (std::size_t i = 0; i < p.all_parameters().size(); ++i) {
      const std::string key = prefix + std::string{p.path(p.parameters[i]).view()};
      REQUIRE(at(key).extents == p.parameters[i].spec.extents);
      check_close(model.gradients().data() + model.layout().offsets[i], at(key));
    }
  }

  template <class Model>
  void check_buffers(const Model& model) const {
    const ike::state_view now = ike::get_state_dict(model);
    for (const auto& e : recorded<T>()) {
      const std::string prefix = network + "/after.";
      if (!e.name.starts_with(prefix)) continue;
      const auto& is = now.at(e.name.substr(prefix.size()));
      if (is.type == ike::dtype::int64)
        CHECK_MESSAGE(std::memcmp(is.bytes.data(), e.bytes.data(), e.bytes.size()) == 0, e.name);
      else
        check_close(reinterpret_cast<const T*>(is.bytes.data()), e);
    }
  }
};

/// Calls f on every instruction set of this machine.
template <class F>
void for_each_instruction_set(F&& f) {
  const ike::cpu::instruction_set before = ike::cpu::active_instruction_set();
  for (const auto s : ike::cpu::instruction_sets) {
    if (!ike::cpu::supports(s)) continue;
    ike::cpu::set_instruction_set(s);
    CAPTURE(ike::cpu::name(s));
    f();
  }
  ike::cpu::set_instruction_set(before);
}

}  // namespace recorded_network
