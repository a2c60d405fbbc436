#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/columns.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plain.hpp"
#include "ikebana/cpu/conv/product.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/ways.hpp"
#include "ikebana/cpu/conv/weights/dots.hpp"
#include "ikebana/cpu/conv/weights/images.hpp"
#include "ikebana/cpu/conv/weights/job.hpp"
#include "ikebana/cpu/conv/weights/lanes.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/gemm.hpp"

namespace ikebana::cpu::detail {

template <class T>
bool run_weights_by_lanes(const weights_job<T>& job) {
  weights_by_lanes<T> lanes{job};
  if (!lanes.fit()) return false;
  lanes.run();
  return true;
}
template <class T>
void weights_product(const weights_job<T>& job) {
  const conv_pass& p = job.p;
  const dim_t plane = job.dy_plane();
  for (dim_t i = 0; i < p.batch; ++i)
    gemm<T>(transpose::no, transpose::yes, p.results, p.sources, plane, T(1),
            job.dy + i * p.result_image, plane, job.x + i * p.source_image, plane,
            T(job.accumulate || i > 0), job.dw, p.sources);
}

/// False, having done nothing, where no copy of what a row of positions meets fits.
template <class T>
bool weights_directly(const weights_ways<T>& ways, const weights_job<T>& job) {
  if (job.p.to[2] > 2048) return false;
  if (ways.lanes != nullptr && ways.lanes(job)) return true;
  weights_by_dots<T> dots{job};
  if (!dots.fit()) return false;
  if (weights_by_images<T> images{job}; images.pays(dots))
    images.run();
  else
    dots.run();
  return true;
}
/// Rows of which no copy would fit are met in parts.
template <class T>
void walk_weights(const weights_ways<T>& ways, const weights_job<T>& job) {
  if (weights_directly(ways, job)) return;
  const conv_pass& p = job.p;
  if (p.to[2] == 1) return weights_plainly(job);
  const dim_t columns = even_part(p.to[2], least(parts(p.to[2], 2), 1024));
  bool adds = job.accumulate;
  for (dim_t z = 0; z < p.to[0]; ++z)
    for (dim_t y = 0; y < p.to[1]; ++y)
      for (dim_t x = 0; x < p.to[2]; x += columns, adds = true) {
        conv_pass part = p;
        part.to = {1, 1, least(p.to[2] - x, columns)};
        part.padding = {p.padding[0] - z * p.stride[0], p.padding[1] - y * p.stride[1],
                        p.padding[2] - x * p.stride[2]};
        walk_weights<T>(ways,
                        {job.tiles, part, job.x, job.dy + p.result_at(z, y, x), job.dw, adds});
      }
}

/// The gradient of the weights of group number `group`, of a pass forward, by bands of positions.
/// Nothing but dy and x (with the zeros around it) is ever multiplied, but by Winograd's way.
template <class T>
void weights_gradient(const weights_ways<T>& ways, const conv_tiles<T>& tiles, const conv_pass& p,
                      dim_t group, const T* x, const T* dy, T* dw, bool accumulate) {
  const dim_t group_size = p.results * p.weight_result;
  const weights_job<T> job{tiles,
                           p,
                           x + group * p.sources * conv_geometry::volume(p.from),
                           dy + group * p.results * conv_geometry::volume(p.to),
                           dw + group * group_size,
                           accumulate};
  if (group_size == 0) return;
  if (p.batch == 0 || conv_geometry::volume(p.to) <= 0 || conv_geometry::volume(p.from) <= 0) {
    if (!accumulate) tiles.clear(job.dw, group_size);
    return;
  }
  if (ways.winograd != nullptr && ways.winograd(tiles, p, job.x, job.dy, job.dw, accumulate))
    return;
  if (conv_columns<T> columns{tiles, p, group}; columns.backward_weights_pays())
    return columns.backward_weights(x, dy, dw, accumulate);
  if (ways.product != nullptr && is_product(p)) return ways.product(job);
  if (ways.walk != nullptr)
    ways.walk(ways, job);
  else
    weights_plainly(job);
}

}  // namespace ikebana::cpu::detail
