#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/bands.hpp"
#include "ikebana/cpu/conv/images.hpp"
#include "ikebana/cpu/conv/lanes.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/picked.hpp"
#include "ikebana/cpu/conv/plain.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/product.hpp"
#include "ikebana/cpu/conv/row_lanes.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/way_costs.hpp"
#include "ikebana/cpu/conv/winograd.hpp"

namespace ikebana::cpu::detail {

/// One group's results, all of `then` included (which is of forward alone). `winograd` may be null.
template <class T>
void run_pass(const conv_tiles<T>& tiles, const conv_pass& p, const T* source, const T* w,
              const T* bias, T* result, const conv_epilogue<T>& then, pass_way<T> winograd) {
  if (winograd != nullptr && winograd(tiles, p, source, w, bias, result, then)) return;
  // What is scaled is added to later.
  const bool scales = then.scale != nullptr;
  const conv_operands<T> of{source, w,    scales ? nullptr : bias,
                            result, then, scales ? bias : nullptr};
  if (p.batch == 0 || p.results == 0 || conv_geometry::volume(p.to) <= 0) return;
  if (is_product(p)) return conv_product<T>{tiles, p, of}.run();
  if (conv_picked<T>::suits(p)) return conv_picked<T>{tiles, p}.forward(of);
  if (p.sources > 0 && p.taps() > 0 && conv_geometry::volume(p.from) > 0) {
    const auto by_rows = [&](double cycles) {
      const dim_t images = p.batch, weights = p.sources * p.results * p.taps();
      if (!row_lanes<T>::may_pay(tiles, p.multiply_adds() / images, weights, p.results,
                                 conv_geometry::volume(p.to), cycles))
        return false;
      row_lanes<T> rows{tiles, p, of};
      if (!rows.pays(cycles)) return false;
      rows.run();
      return true;
    };
    const bool may_go_by_rows = row_lanes<T>::suits(p);
    if (lanes_run<T> lanes{tiles, p, of}; lanes.fit()) {
      if (may_go_by_rows && by_rows(lanes_cycles(tiles, p))) return;
      return lanes.run();
    }
    if (conv_plan<T> plan{tiles, p}; plan.fit()) {
      if (may_go_by_rows && by_rows(plan_cycles(plan))) return;
      if (images_run<T> images{tiles, p, of}; images.pays(plan)) return images.run();
      return run_bands(plan, of);
    }
  }
  pass_plainly(p, source, w, of.bias, result);
  if (then.function == activation::none && then.residual == nullptr && !scales) return;
  const dim_t plane = p.result_plane();
  for (dim_t b = 0; b < p.batch; ++b) {
    const dim_t at = b * p.result_image;
    tiles.finish_rows(p.results, plane, result + at, plane, {then.scale, of.shift, then.function},
                      then.residual == nullptr ? nullptr : then.residual + at);
  }
}

}  // namespace ikebana::cpu::detail
