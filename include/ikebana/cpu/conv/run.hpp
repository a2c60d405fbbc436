#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/bands.hpp"
#include "ikebana/cpu/conv/images.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plain.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/product.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/ways.hpp"

namespace ikebana::cpu::detail {

/// A pass whose positions meet several elements. False where no copy of what they meet fits.
template <class T>
bool walk_pass(const pass_ways<T>& ways, const conv_tiles<T>& tiles, const conv_pass& p,
               const conv_operands<T>& of) {
  if (p.sources == 0 || p.taps() == 0 || conv_geometry::volume(p.from) == 0) return false;
  conv_plan<T> plan{tiles, p};
  if (!plan.fit()) return false;
  if (images_run<T> images{tiles, p, of}; images.pays(plan))
    images.run();
  else
    run_bands(plan, of, ways.panels);
  return true;
}

/// One group's results, all of `then` included (which is of forward alone).
template <class T>
void run_pass(const pass_ways<T>& ways, const conv_tiles<T>& tiles, const conv_pass& p,
              const T* source, const T* w, const T* bias, T* result, const conv_epilogue<T>& then) {
  if (ways.winograd != nullptr && ways.winograd(tiles, p, source, w, bias, result, then)) return;
  // What is scaled is added to later.
  const bool scales = then.scale != nullptr;
  const conv_operands<T> of{source, w,    scales ? nullptr : bias,
                            result, then, scales ? bias : nullptr};
  if (p.batch == 0 || p.results == 0 || conv_geometry::volume(p.to) <= 0) return;
  if (ways.product != nullptr && is_product(p)) return ways.product(tiles, p, of);
  if (ways.walk == nullptr || !ways.walk(ways, tiles, p, of)) pass_plainly(tiles, p, of);
}

}  // namespace ikebana::cpu::detail
