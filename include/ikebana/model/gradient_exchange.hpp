#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/engine.hpp"
#include "ikebana/model/output_gradients.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana::detail {

/// The engine with output gradients from the caller and input gradients for the caller.
template <class E, any_module M, std::size_t Inputs>
class gradient_exchange : protected engine<E, M, Inputs> {
 protected:
  using passes = engine<E, M, Inputs>;
  using passes::passes;
  using passes::tables_;
  using passes::workspace_;
  using typename passes::T;
  static constexpr std::size_t outputs = output_count<M>();
  using gradient_list = output_gradients<T, outputs>;

  void check_gradients(const gradient_list& given) const {
    for (std::size_t i = 0; i < outputs; ++i)
      tables_->check_output_gradient(i,
                                     given.given[i] ? given.shapes[i] : tables_->current.output(i));
  }

  void copy_gradients(const gradient_list& given) {
    for (std::size_t i = 0; i < outputs; ++i) {
      passes::set_output_written(i, given.given[i]);
      if (T* to = tables_->output_gradient(i); to != nullptr && given.given[i])
        std::copy_n(given.data[i], given.shapes[i].numel(), to);
    }
  }

  template <class G>
  void set_output_gradients(const G& g) {
    const gradient_list given = gradient_list::of(g);
    check_gradients(given);
    copy_gradients(given);
  }

  /// Makes the next run_backward also write the gradients of the inputs that are numbers; `data`
  /// and `extents` have one element for each.
  void set_gradients(gradient_list given, const shape* extents, T* const* data) {
    check_gradients(given);
    std::array<T*, Inputs + 1> to{};
    for (std::size_t v = 0, i = 0; v < Inputs; ++v) {
      if (tables_->lowered.kinds[v] != element_kind::real) continue;
      tables_->check_input_gradient(v, extents[i]);
      to[v] = data[i++];
    }
    std::array<aligned_buffer<T>, outputs> kept;
    if (!tables_->input_gradients) {
      // The given gradients may be in memory that is about to be planned again.
      for (std::size_t i = 0; i < outputs; ++i) {
        if (!given.given[i]) continue;
        const dim_t n = given.shapes[i].numel();
        kept[i] = aligned_buffer<T>(n);
        std::copy_n(given.data[i], n, kept[i].data());
        given.data[i] = kept[i].data();
      }
      passes::plan_input_gradients();
    }
    copy_gradients(given);
    tables_->set_input_gradients(to.data(), workspace_.data());
    // An output that is itself an input.
    for (std::size_t i = 0; i < outputs; ++i)
      if (tables_->lowered.outputs[i] < static_cast<int>(Inputs) && given.given[i])
        std::copy_n(given.data[i], given.shapes[i].numel(), tables_->output_gradient(i));
  }

  /// Stops writing to the caller's memory.
  void end_input_gradients() {
    const std::array<T*, Inputs + 1> none{};
    tables_->set_input_gradients(none.data(), workspace_.data());
  }
};

}  // namespace ikebana::detail
