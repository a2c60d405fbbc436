#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/core/compiled_once.hpp"
#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/shape_error.hpp"

namespace ikebana {

#if IKEBANA_ONCE_HERE
IKEBANA_ONCE shape_error::shape_error(const diagnostic& d) : error(d.message().c_str()) {}
#endif

/// The names of the tensors in which a state and the model it is loaded into differ, in the order
/// of the model; unexpected ones in the order of the state.
struct state_differences {
  std::vector<std::string> missing;        ///< In the model, not in the state.
  std::vector<std::string> unexpected;     ///< In the state, not in the model.
  std::vector<std::string> mismatched;     ///< Of another shape or type.
  std::vector<std::string> uninitialized;  ///< Of a module that was lazy when it was saved.

  bool empty() const {
    return missing.empty() && unexpected.empty() && mismatched.empty() && uninitialized.empty();
  }
};

/// A state (parameters, buffers, optimizer) that does not match the model it is loaded into. The
/// lists hold the names that the text contains; they are empty if the error is about something
/// else.
class state_error : public error, public state_differences {
 public:
  using error::error;
  state_error(const std::string& text, state_differences lists)
      : error(text), state_differences(std::move(lists)) {}
};

/// A file that cannot be read or written, or that violates its format.
class io_error : public error {
 public:
  using error::error;
};

/// A rank that failed, left or never came, or a collective that the ranks called differently.
class communication_error : public error {
 public:
  using error::error;
};

#if defined(IKEBANA_KERNELS_OF) || defined(IKEBANA_ALL_KERNELS)
template void throw_error(const error&);
template void throw_error(const shape_error&);
template void throw_error(const state_error&);
#elif !IKEBANA_ONCE_HERE
extern template void throw_error(const error&);
extern template void throw_error(const shape_error&);
extern template void throw_error(const state_error&);
#endif

}  // namespace ikebana
