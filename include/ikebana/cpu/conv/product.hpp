#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/conv_memory.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/gemm.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// The weights of a pass times an image, by blocks: what follows it finds them
/// in the cache.
template <class T>
struct conv_product {
  const conv_tiles<T>& tiles;
  const conv_pass& p;
  const conv_operands<T>& of;
  dim_t plane, columns, rows;  // positions; of a block
  dim_t from_plane = conv_geometry::volume(p.from), result_plane = p.result_plane();
  gemm_algorithm whole = gemm_algorithm_of(product(0, p.results, 0, 0, plane, no_epilogue<T>));

  conv_product(const conv_tiles<T>& t, const conv_pass& pass, const conv_operands<T>& operands)
      : tiles{t}, p{pass}, of{operands}, plane{conv_geometry::volume(p.to)} {
    columns = plane;
    rows = p.results;
    if (of.bias != nullptr) rows = even_part(rows, conv_costs::product_results);
    if (of.finishes()) divide(conv_costs::finished_positions);
    if (shares_work(p.multiply_adds()))
      while (blocks() < 2 * num_threads() && columns > conv_costs::least_product_positions)
        divide((columns + 1) / 2);
  }
  void divide(dim_t most) {
    columns = rounded_up(even_part(plane, most), conv_costs::product_unit);
  }
  dim_t across() const { return parts(plane, columns); }
  dim_t blocks() const { return p.batch * across() * parts(p.results, rows); }

  void run() const {
    const dim_t all = blocks();
    share_parts(all, grain_of(all, p.multiply_adds()), [this](dim_t begin, dim_t end) {
      const dim_t images = p.batch * across();
      for (dim_t i = begin; i < end; ++i)
        block(i / images * rows, i % images / across(), i % across() * columns);
    });
  }

  gemm_call<T> product(dim_t r, dim_t m, dim_t image, dim_t j, dim_t n,
                       const gemm_epilogue<T>& then) const {
    // One of the weights' two steps is 1.
    const bool turned = p.weight_source != 1;
    return {m,
            n,
            p.sources,
            of.weights + r * p.weight_result,
            turned ? p.weight_source : p.weight_result,
            of.source + image * p.source_image + j,
            from_plane,
            of.result + image * p.result_image + r * result_plane + j,
            result_plane,
            &then,
            T(1),
            T(0),
            turned ? transpose::yes : transpose::no,
            transpose::no};
  }

  void block(dim_t r, dim_t image, dim_t j) const {
    const dim_t n = plane - j < columns ? plane - j : columns;
    const dim_t m = p.results - r < rows ? p.results - r : rows;
    const dim_t at = image * p.result_image + r * result_plane + j;
    gemm_epilogue<T> then{.function = of.relu() ? of.then.function : final_activation<T>{}};
    if (of.bias != nullptr) then.row_bias = of.bias + r;
    run_gemm_part(whole, product(r, m, image, j, n, then));
    if (of.finishes()) of.finish(tiles, m, n, at, result_plane, r);
  }
};

template <class T>
bool run_product(const conv_table<T>& table, const conv_pass& p, const conv_operands<T>& of) {
  conv_product<T>{table.tiles(), p, of}.run();
  return true;
}

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
