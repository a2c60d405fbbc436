#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/model/plan/loops/loop_backward.hpp"
#include "ikebana/model/plan/memory_planner.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana::detail {
IKEBANA_CPU_BEGIN_SMALL

/// Writes the instructions of the loops that were planned. A loop that does not fit into the tables
/// or the scratch of a thread is taken back: its nodes then run one by one.
class loop_builder : loop_backward {
 public:
  loop_builder(const program_view& p, const memory_tables& plan, std::size_t element_size,
               const loop_tables& to)
      : loop_backward{p, plan, element_size, to} {}

  /// Returns whether all fit.
  [[gnu::cold]] bool run() {
    bool all_fit = true;
    const auto nodes = static_cast<int>(p_.n.nodes);
    for (std::size_t e = 0; e < p_.n.edges; ++e) to_.edges[e] = loop_edge::nothing;
    for (int k = 0; k < nodes; ++k) to_.loops[k] = {};
    for (int k = 0; k < nodes; ++k)
      if (const int loop = plan_.fusion.calls[k].loop; loop > 0) {
        fused_loop& l = to_.loops[loop - 1];
        if (l.last < 0) l.first = k;
        l.last = k;
      }
    int used = 0;
    for (int k = 0; k < nodes; ++k)
      if (const fused_call& f = plan_.fusion.calls[k]; f.loop > 0 && f.runs_loop) {
        const int before = used;
        if (!build(f.loop, used)) {
          used = before;
          take_back(f.loop);
          all_fit = false;
        }
      }
    return all_fit;
  }

 private:
  [[gnu::cold]] bool build(int loop, int& used) {
    loop_ = loop;
    fused_loop& l = to_.loops[loop - 1];
    l_ = &l;
    fits_ = true;
    analyse();
    used_ = &used;
    if (has_backward_) find_contributions();
    begin_program();
    for (int k = l.first; k <= l.last; ++k)
      if (is_member(k) && !is_view(k)) compute(k, true);
    end_program(l.forward, false);
    if (!fits_) return false;
    if (!has_backward_) return true;
    begin_program();
    backward_ = true;
    write_backward();
    end_program(l.backward, true);
    return fits_;
  }

  [[gnu::cold]] void take_back(int loop) {
    for (std::size_t k = 0; k < p_.n.nodes; ++k)
      for (fused_call* calls : {plan_.fusion.calls, plan_.fusion.evaluation_calls})
        if (calls[k].loop == loop) calls[k] = {};
    for (int k = l_->first; k <= l_->last; ++k)
      for (std::size_t i = 0; i < p_.nodes[k].input_count; ++i)
        to_.edges[p_.nodes[k].first_edge + static_cast<int>(i)] = loop_edge::nothing;
  }
};

/// Writes the loops that were planned for a network of T; false if some run one by one instead.
/// Compiled with the kernels.
template <class T>
bool build_loops(const program_view& p, const memory_tables& plan, const loop_tables& to) {
  return loop_builder(p, plan, sizeof(T), to).run();
}
IKEBANA_CPU_KERNEL(build_loops)

IKEBANA_CPU_END_SMALL
}  // namespace ikebana::detail
