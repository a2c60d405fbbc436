#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "ikebana/model/hooks/module_call.hpp"

namespace ikebana {

/// The backward of one call of a module, as passed to its hooks. Gradients have the element type T
/// of the model (`type`) and the shapes of the outputs and inputs. A span is empty if there is no
/// gradient: of an output that the result does not depend on, of an input whose gradient is not
/// needed (such as those of the model, unless backward is asked for them), and of integers and
/// booleans.
class module_gradients : public hooked_module {
 public:
  /// The gradient of an output, summed over all its readers. Throws error if U is not T.
  template <class U>
  std::span<const U> output_gradient(std::size_t i = 0) const {
    return gradient<const U>(call_->outputs.ids[i], output_gradients_[i], "output gradient");
  }
  /// The same, for writing, in a hook before the module's backward, which uses the changed values.
  template <class U>
  std::span<U> writable_output_gradient(std::size_t i = 0) const {
    if (after_) fail("output gradient is replaced before backward, not after it");
    return gradient<U>(call_->outputs.ids[i], output_gradients_[i], "output gradient");
  }

  /// The contribution of this call to the gradient of an input, in a hook after the module's
  /// backward. For an input that is given twice it is the sum of both. Throws as output_gradient()
  /// does.
  template <class U>
  std::span<const U> input_gradient(std::size_t i = 0) const {
    return writable_input_gradient<U>(i);
  }
  template <class U>
  std::span<const U> input_gradient(std::string_view name) const {
    return writable_input_gradient<U>(input_index(name));
  }
  /// The same, for writing; the changed values are passed on.
  template <class U>
  std::span<U> writable_input_gradient(std::size_t i = 0) const {
    if (!after_) fail("input gradient is not there before backward");
    return gradient<U>(call_->inputs.ids[i], input_gradients_[i], "input gradient");
  }
  template <class U>
  std::span<U> writable_input_gradient(std::string_view name) const {
    return writable_input_gradient<U>(input_index(name));
  }

  // Set by the model.
  void* output_gradients_[max_arity]{};
  void* input_gradients_[max_arity]{};
  bool after_ = false;

 private:
  template <class U>
  std::span<U> gradient(int v, void* at, const char* what) const {
    if (at == nullptr) return {};
    check_elements<std::remove_const_t<U>>(v, what);
    return elements_of<U>(v, at);
  }
};

}  // namespace ikebana
