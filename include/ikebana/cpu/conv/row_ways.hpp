#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/columns.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/row_lanes.hpp"
#include "ikebana/cpu/conv/spread.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/way_costs.hpp"
#include "ikebana/cpu/conv/ways.hpp"
#include "ikebana/cpu/conv_geometry.hpp"

// Where results as lanes (row_lanes.hpp) are faster than another way.
namespace ikebana::cpu::detail {

template <class T>
bool rows_over_columns(const conv_columns<T>& columns) {
  return row_lanes<T>::suits(columns.p) &&
         row_lanes<T>{columns.tiles, columns.p, {}}.pays(forward_cycles(columns));
}

template <class T>
bool pass_by_rows(const conv_tiles<T>& tiles, const conv_pass& p, const conv_operands<T>& of,
                  double cycles) {
  if (!row_lanes<T>::may_pay(tiles, p.multiply_adds() / p.batch, p.sources * p.results * p.taps(),
                             p.results, conv_geometry::volume(p.to), cycles))
    return false;
  row_lanes<T> rows{tiles, p, of};
  if (!rows.pays(cycles)) return false;
  rows.run();
  return true;
}
template <class T>
bool rows_over_lanes(const conv_tiles<T>& tiles, const conv_pass& p, const conv_operands<T>& of) {
  return row_lanes<T>::suits(p) && pass_by_rows(tiles, p, of, lanes_cycles(tiles, p));
}
template <class T>
bool rows_over_plan(const conv_plan<T>& plan, const conv_operands<T>& of) {
  return row_lanes<T>::suits(plan.p) && pass_by_rows(plan.tiles, plan.p, of, plan_cycles(plan));
}
template <class T>
inline constexpr row_ways<T> all_row_ways{&rows_over_columns<T>, &rows_over_lanes<T>,
                                          &rows_over_plan<T>};

/// Backward by data, of strides.
template <class T>
bool may_go_by_rows(const data_job<T>& job, double cycles) {
  const conv_pass& all = job.all;
  const dim_t weights = all.sources * all.results * all.taps();
  return conv_geometry::volume(all.stride) > 1 && all.taps() > 1 &&
         row_lanes<T>::may_pay(job.tiles, weights * conv_geometry::volume(all.to), weights,
                               all.sources, conv_geometry::volume(all.from), cycles);
}
template <class T>
bool data_by_rows(const data_job<T>& job, double cycles) {
  if (!may_go_by_rows(job, cycles)) return false;
  row_lanes<T> rows{job.tiles, job.g, job.of(0)};
  if (!rows.pays(cycles)) return false;
  share_groups(job.g.groups, job.all.multiply_adds(), [&](dim_t group) {
    row_lanes<T> mine = rows;
    mine.of = job.of(group);
    mine.run();
  });
  return true;
}
template <class T>
bool rows_over_spread(const conv_spread<T>& spread, const data_job<T>& job) {
  return data_by_rows(job, backward_data_cycles(spread));
}
template <class T>
bool rows_over_columns(const conv_columns<T>& columns, const data_job<T>& job) {
  return data_by_rows(job, backward_data_cycles(columns));
}
template <class T>
bool rows_over_passes(const data_job<T>& job) {
  const dim_t width = job.tiles.width;
  if (!may_go_by_rows(job, 4000 + 3 * products_of(job.all, width))) return false;
  const conv_pass first = backward_pass(job.g, {0, 0, 0});
  if (first.taps() == 0) return false;
  double products = 0;
  each_pass(job.g, [&](const conv_pass& pass, dim_t) { products += products_of(pass, width); });
  return data_by_rows(job, pass_cycles(job.tiles, first) * products / products_of(first, width));
}
template <class T>
inline constexpr data_row_ways<T> all_data_row_ways{&rows_over_spread<T>, &rows_over_columns<T>,
                                                    &rows_over_passes<T>};

}  // namespace ikebana::cpu::detail
