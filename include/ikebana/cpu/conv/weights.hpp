#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/columns.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/picked.hpp"
#include "ikebana/cpu/conv/plain.hpp"
#include "ikebana/cpu/conv/product.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/weights_dots.hpp"
#include "ikebana/cpu/conv/weights_images.hpp"
#include "ikebana/cpu/conv/weights_job.hpp"
#include "ikebana/cpu/conv/weights_lanes.hpp"
#include "ikebana/cpu/conv/winograd_kernels.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/gemm.hpp"

namespace ikebana::cpu::detail {

/// False, having done nothing, where no copy of what a row of positions meets fits.
template <class T>
bool weights_directly(const weights_job<T>& job) {
  if (job.p.to[2] > 2048) return false;
  if (weights_by_lanes<T> lanes{job}; lanes.fit()) {
    lanes.run();
    return true;
  }
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
void weights_by_parts(const weights_job<T>& job) {
  if (weights_directly(job)) return;
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
        weights_by_parts<T>({job.tiles, part, job.x, job.dy + p.result_at(z, y, x), job.dw, adds});
      }
}

/// The gradient of the weights of group number `group`, by bands of positions.
/// Nothing but dy and x (with the zeros around it) is ever multiplied, but by `winograd`, which may
/// be null.
template <class T>
void weights_gradient(const conv_tiles<T>& tiles, const conv_geometry& g, dim_t group, const T* x,
                      const T* dy, T* dw, bool accumulate, weights_way<T> winograd) {
  const conv_pass p = forward_pass(g);
  const dim_t group_size = p.results * p.weight_result;
  const weights_job<T> job{tiles,
                           p,
                           x + group * p.sources * conv_geometry::volume(p.from),
                           dy + group * p.results * conv_geometry::volume(p.to),
                           dw + group * group_size,
                           accumulate};
  if (group_size == 0) return;
  if (g.batch == 0 || conv_geometry::volume(p.to) <= 0 || conv_geometry::volume(p.from) <= 0) {
    if (!accumulate) tiles.clear(job.dw, group_size);
    return;
  }
  if (winograd != nullptr && winograd(tiles, p, job.x, job.dy, job.dw, accumulate)) return;
  if (conv_columns<T> columns{tiles, g, group}; columns.backward_weights_pays())
    return columns.backward_weights(x, dy, dw, accumulate);
  if (is_product(p)) {
    const dim_t plane = job.dy_plane();
    for (dim_t i = 0; i < p.batch; ++i)
      gemm<T>(transpose::no, transpose::yes, p.results, p.sources, plane, T(1),
              job.dy + i * p.result_image, plane, job.x + i * p.source_image, plane,
              T(accumulate || i > 0), job.dw, p.sources);
    return;
  }
  if (conv_picked<T>::suits(p)) return conv_picked<T>{tiles, p}.backward_weights(job);
  weights_by_parts(job);
}

}  // namespace ikebana::cpu::detail
