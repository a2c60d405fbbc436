#include <cstring>
#include <vector>

#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/threads.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;
using cpu::conv_geometry;

namespace {

struct layer {
  dim_t batch, inputs, outputs, groups, in, kernel, stride, padding;
};

// Each with enough products to be divided: by panels, packed and not, by outputs, by images that
// share bands, by tiles of few outputs, with outputs as lanes; into groups; with gaps.
const layer layers[] = {
    {1, 16, 64, 1, 56, 3, 1, 1},  {1, 64, 64, 1, 56, 1, 1, 0},   {2, 32, 40, 1, 30, 5, 2, 2},
    {9, 65, 67, 1, 7, 3, 1, 1},   {1, 100, 300, 1, 9, 3, 1, 1},  {40, 6, 16, 1, 14, 5, 1, 0},
    {3, 9, 23, 1, 45, 3, 1, 1},   {1, 40, 64, 1, 40, 5, 1, 2},   {2, 24, 32, 4, 40, 3, 1, 1},
    {1, 40, 72, 1, 60, 1, 2, 0},  {1, 120, 130, 1, 16, 1, 1, 0}, {3, 300, 200, 1, 7, 1, 1, 0},
    {2, 200, 300, 1, 5, 5, 1, 0}, {12, 40, 48, 1, 7, 3, 1, 1},   {3, 64, 96, 1, 28, 3, 2, 1},
    {5, 64, 96, 1, 28, 1, 2, 0},  {5, 64, 70, 1, 28, 1, 1, 0}};

template <class T>
std::vector<T> all_results(const conv_geometry& g, const guarded<T>& x, const guarded<T>& w,
                           const guarded<T>& bias, const guarded<T>& dy) {
  guarded<T> y(dy.size()), dx(x.size()), dw(w.size(), T(2)), fresh(w.size()), db(bias.size());
  cpu::conv_forward<T>(g, x.data(), w.data(), bias.data(), y.data(),
                       {dy.data(), cpu::activation::relu});
  cpu::conv_backward_data<T>(g, dy.data(), w.data(), dx.data());
  cpu::conv_backward_weights<T>(g, x.data(), dy.data(), dw.data(), true);
  cpu::conv_backward_weights<T>(g, x.data(), dy.data(), fresh.data(), false);
  cpu::conv_backward_bias<T>(g, dy.data(), db.data(), false);
  std::vector<T> all;
  for (const auto* a : {&y, &dx, &dw, &fresh, &db}) {
    CHECK(a->intact());
    all.insert(all.end(), a->data(), a->data() + a->size());
  }
  return all;
}

}  // namespace

TEST_CASE_TEMPLATE("convolutions give the same bits on any number of threads", T, float, double) {
  generator r(81);
  for (const layer& l : layers) {
    const dim_t out = (l.in + 2 * l.padding - l.kernel) / l.stride + 1;
    const conv_geometry g{l.batch,
                          l.inputs,
                          l.outputs,
                          l.groups,
                          {1, l.in, l.in},
                          {1, out, out},
                          {1, l.kernel, l.kernel},
                          {1, l.stride, l.stride},
                          {0, l.padding, l.padding},
                          {1, 1, 1}};
    const guarded<T> x(l.batch * l.inputs * l.in * l.in, r), bias(l.outputs, r),
        w(l.outputs * l.inputs / l.groups * l.kernel * l.kernel, r),
        dy(l.batch * l.outputs * out * out, r);
    const auto before = cpu::active_instruction_set();
    for (const cpu::instruction_set set : {before, cpu::instruction_set::scalar}) {
      // The divisions are the same on every instruction set, and the scalar one is slow.
      if (set == cpu::instruction_set::scalar && l.batch != 40) continue;
      cpu::set_instruction_set(set);
      INFO(l.inputs << " to " << l.outputs << " channels");
      const std::vector<T> alone = all_results(g, x, w, bias, dy);
      for (const int threads : {2, 3}) {
        const ikebana::scoped_num_threads some(threads);
        const std::vector<T> together = all_results(g, x, w, bias, dy);
        CHECK(std::memcmp(alone.data(), together.data(), alone.size() * sizeof(T)) == 0);
      }
    }
    cpu::set_instruction_set(before);
  }
}
