#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana {

/// One call of a module, as its hooks see it; valid while the hook runs. Data are T of the model
/// (`type`), std::int64_t or bool.
class module_call {
 public:
  std::string_view path;  ///< "" for the whole network.
  std::string_view kind;
  dtype type = dtype::float32;
  bool training = true;

  std::size_t input_count() const { return inputs_.count; }
  std::size_t output_count() const { return outputs_.count; }
  const shape& input_shape(std::size_t i = 0) const { return shapes_[inputs_.ids[i]]; }
  const shape& output_shape(std::size_t i = 0) const { return shapes_[outputs_.ids[i]]; }

  /// Throws error if the elements are not U, or if their memory serves another value by now: an
  /// input of a composition, seen from the hook after it.
  template <class U>
  std::span<const U> input(std::size_t i = 0) const {
    return data<const U>(inputs_.ids[i], "input");
  }
  /// In a hook after the module only; throws as input() does.
  template <class U>
  std::span<const U> output(std::size_t i = 0) const {
    return data<const U>(check_output(outputs_.ids[i]), "output");
  }
  /// The output, to be changed in place; what a module keeps for backward is then what was written.
  /// Throws as output() does, and where the output is memory of the caller.
  template <class U>
  std::span<U> writable_output(std::size_t i = 0) const {
    const int v = check_output(outputs_.ids[i]);
    if (roots_[v] < model_inputs_) fail("output is an input of the model, which is not written");
    return data<U>(v, "output");
  }

  // Filled in by the model.
  value_list inputs_{}, outputs_{};
  int first_node_ = 0, end_node_ = 0;
  const shape* shapes_ = nullptr;
  const element_kind* kinds_ = nullptr;
  const int* roots_ = nullptr;
  int model_inputs_ = 0;
  bool after_ = false;
  const void* owner_ = nullptr;
  const void* (*read_)(const void* owner, const module_call&, int value) = nullptr;

 private:
  template <class = void>
  [[noreturn]] void fail(const std::string& what) const {
    throw error("hook of " + (path.empty() ? "the network" : std::string{path}) + ": the " + what);
  }

  template <class = void>
  int check_output(int v) const {
    if (!after_) fail("output is not there before forward");
    return v;
  }

  template <class U>
  std::span<U> data(int v, const char* what) const {
    using E = std::remove_const_t<U>;
    bool fits = false;
    switch (kinds_[v]) {
      case element_kind::real:
        if constexpr (floating<E>) fits = dtype_of<E> == type;
        break;
      case element_kind::index:
        fits = std::is_same_v<E, std::int64_t>;
        break;
      case element_kind::boolean:
        fits = std::is_same_v<E, bool>;
        break;
    }
    if (!fits) fail(std::string{what} + " has elements of another type");
    const void* at = read_(owner_, *this, v);
    const auto n = static_cast<std::size_t>(shapes_[v].numel());
    if (at == nullptr && n > 0) fail(std::string{what} + " is gone: its memory was used again");
    return {static_cast<U*>(const_cast<void*>(at)), n};
  }
};

}  // namespace ikebana
