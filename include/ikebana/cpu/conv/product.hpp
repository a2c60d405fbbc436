#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/gemm.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// The weights of a pass times an image, by blocks of positions: what follows it finds them in the
/// cache.
template <class T>
void run_product(const conv_table<T>& table, const conv_step& step, const conv_operands<T>& of) {
  const conv_pass& p = step.pass;
  // One of the weights' two steps is 1.
  const bool turned = p.weight_source != 1;
  const dim_t plane = conv_geometry::volume(p.to), from_plane = conv_geometry::volume(p.from),
              result_plane = p.result_plane();
  const auto divided = [plane](dim_t most) {
    return rounded_up(even_part(plane, most), conv_costs::product_unit);
  };
  dim_t columns = of.finishes() ? divided(conv_costs::finished_positions) : plane;
  if (shares_work(p.multiply_adds()))
    while (p.batch * parts(plane, columns) < conv_costs::parts_for_thread * num_threads() &&
           columns > conv_costs::least_product_positions)
      columns = divided(parts(columns, 2));
  gemm_epilogue<T> then{.function = of.relu() ? of.then.function : final_activation<T>{}};
  then.row_bias = of.bias;
  const gemm_call<T> image{p.results,
                           plane,
                           p.sources,
                           of.weights,
                           turned ? p.weight_source : p.weight_result,
                           of.source,
                           from_plane,
                           of.result,
                           result_plane,
                           &then,
                           T(1),
                           T(0),
                           turned ? transpose::yes : transpose::no,
                           transpose::no};
  const gemm_algorithm whole = gemm_algorithm_of(image);
  const dim_t across = parts(plane, columns), blocks = p.batch * across;
  share_parts(blocks, grain_of(blocks, p.multiply_adds()), [&](dim_t begin, dim_t end) {
    for (dim_t i = begin; i < end; ++i) {
      const dim_t from = i % across * columns, at = i / across * p.result_image + from;
      gemm_call<T> block = image;
      block.n = least(plane - from, columns);
      block.b += i / across * p.source_image + from;
      block.c += at;
      run_gemm_part(whole, block);
      if (of.finishes()) of.finish(table.tiles(), p.results, block.n, at, result_plane, 0);
    }
  });
}

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
