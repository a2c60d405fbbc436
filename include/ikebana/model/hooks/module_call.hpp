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

class module_call;

namespace detail {

/// Access to the values of a running forward.
class forward_values {
 public:
  /// Null if the memory of the value has been reused.
  virtual const void* read(const module_call&, int value) const = 0;
  /// Copies the input, for this call alone, and returns the copy.
  virtual void* replace_input(const module_call&, std::size_t i) = 0;
  /// The output itself, or a copy of it if it shares its memory with another value.
  virtual void* write_output(const module_call&, std::size_t i) = 0;

 protected:
  ~forward_values() = default;
};

}  // namespace detail

/// A call of a module, as passed to its hooks; valid while the hook runs. Inputs and outputs are
/// identified by index, and inputs also by name if the module names them.
class hooked_module {
 public:
  std::string_view path;  ///< "" for the whole network.
  std::string_view kind;
  dtype type = dtype::float32;  ///< T of the model.
  bool training = true;

  std::size_t input_count() const { return call_->inputs.count; }
  std::size_t output_count() const { return call_->outputs.count; }
  const shape& input_shape(std::size_t i = 0) const { return shapes_[call_->inputs.ids[i]]; }
  const shape& output_shape(std::size_t i = 0) const { return shapes_[call_->outputs.ids[i]]; }

  /// The module's name of input i; "" if it has none.
  std::string_view input_name(std::size_t i) const {
    return i < call_->input_names.size() && i < input_count() ? call_->input_names[i]
                                                              : std::string_view{};
  }
  /// The index of the input with this name. Throws error if there is none. O(inputs).
  template <class = void>
  std::size_t input_index(std::string_view name) const {
    for (std::size_t i = 0; i < input_count(); ++i)
      if (!name.empty() && input_name(i) == name) return i;
    throw_error(error(whose() + "it has no input '" + std::string{name} + "'"));
  }

  // Set by the model.
  const program_call* call_ = nullptr;
  const shape* shapes_ = nullptr;
  const element_kind* kinds_ = nullptr;

 protected:
  template <class = void>
  std::string whose() const {
    return "hook of " + (path.empty() ? "the network" : std::string{path}) + ": ";
  }
  template <class = void>
  [[noreturn]] void fail(const std::string& what) const {
    throw_error(error(whose() + "the " + what));
  }

  /// Throws error if the elements of a value are not of type E.
  template <class E>
  void check_elements(int v, const char* what) const {
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
  }

  template <class U>
  std::span<U> elements_of(int v, const void* at) const {
    return {static_cast<U*>(const_cast<void*>(at)), static_cast<std::size_t>(shapes_[v].numel())};
  }
};

/// One forward of a module, as passed to its hooks. Elements are T of the model (`type`),
/// std::int64_t or bool. Inputs are selected by index or name: `call.input<float>("mask")`.
class module_call : public hooked_module {
 public:
  /// The elements of an input. Throws error if they are not of type U, or if their memory has been
  /// reused: in a hook after a composition, for its inputs. Does not allocate.
  template <class U>
  std::span<const U> input(std::size_t i = 0) const {
    return data<U>(call_->inputs.ids[i], "input");
  }
  template <class U>
  std::span<const U> input(std::string_view name) const {
    return input<U>(input_index(name));
  }

  /// The elements of an input, for writing, in a hook before the module. Only this call reads the
  /// changed values; other readers of the input are not affected. The gradient with respect to the
  /// changed input is passed on as the gradient of the original one. An input that is given twice
  /// changes in both positions. Throws as input() does, and also if the input is one of the
  /// module's outputs. Allocates in the first call, and when the input grows.
  template <class U>
  std::span<U> writable_input(std::size_t i = 0) const {
    const int v = call_->inputs.ids[i];
    if (after_) fail("input is replaced before forward, not after it");
    check_elements<U>(v, "input");
    for (std::size_t o = 0; o < output_count(); ++o)
      if (call_->outputs.ids[o] == v) fail("input is an output as well: write that after forward");
    return elements_of<U>(v, values_->replace_input(*this, i));
  }
  template <class U>
  std::span<U> writable_input(std::string_view name) const {
    return writable_input<U>(input_index(name));
  }

  /// The elements of an output, in a hook after the module. Throws as input() does.
  template <class U>
  std::span<const U> output(std::size_t i = 0) const {
    return data<U>(check_output(i), "output");
  }
  /// The elements of an output, for writing, in a hook after the module. The backward of the module
  /// uses the changed values. Throws as output() does, and also if the output is an input of the
  /// model that the module returns unchanged.
  template <class U>
  std::span<U> writable_output(std::size_t i = 0) const {
    const int v = check_output(i);
    check_elements<U>(v, "output");
    if (v < model_inputs_) fail("output is an input of the model, which is not written");
    return elements_of<U>(v, values_->write_output(*this, i));
  }

  // Set by the model.
  detail::forward_values* values_ = nullptr;
  int model_inputs_ = 0;
  bool after_ = false;

 private:
  template <class = void>
  int check_output(std::size_t i) const {
    if (!after_) fail("output is not there before forward");
    return call_->outputs.ids[i];
  }

  template <class U>
  std::span<const U> data(int v, const char* what) const {
    check_elements<U>(v, what);
    const void* at = values_->read(*this, v);
    if (at == nullptr && shapes_[v].numel() > 0)
      fail(std::string{what} + " is gone: its memory was used again");
    return elements_of<const U>(v, at);
  }
};

}  // namespace ikebana
