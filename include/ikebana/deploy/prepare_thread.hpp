#pragma once

#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/threads.hpp"
#include "ikebana/module/module.hpp"

namespace ikebana {

/// Allocates and touches the scratch memory of kernels for the calling thread, and detects the
/// instruction set and the caches, so that no later call of a network on this thread allocates or
/// waits for a page. Idempotent. Takes up to a few milliseconds.
inline void prepare_thread() {
  static_cast<void>(cpu::active_instruction_set());
  cpu::prepare_scratch();
}

namespace detail {
struct prepare_leaves {
  template <class Leaf>
  void operator()(const Leaf&) const {
    if constexpr (requires { Leaf::prepare_thread(); }) Leaf::prepare_thread();
  }
};
}  // namespace detail

/// The same, with what the modules of a network need beyond it: those of `quantize` 2 MB.
template <class Net>
requires requires(const Net& n) { n.module(); }
void prepare_thread(const Net& net) {
  prepare_thread();
  const detail::prepare_leaves prepare;
  for_each_leaf(net.module(), prepare);
}

}  // namespace ikebana
