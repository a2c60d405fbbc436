#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/layout.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/conv_memory.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/gemm.hpp"

namespace ikebana::cpu::detail {

/// Convolutions of one group as products with receptive fields, of which each is a row: of the
/// positions of several images where these are few, else of some lines of positions, or a part of
/// one. In any direction, what of a block is in use stays in the second level of the cache.
template <class T>
struct conv_im2col {
  const conv_tiles<T>& tiles;
  const conv_operands<T>& of;
  const conv_pass& p;  // forward
  dim_t taps = p.taps(), kernel_rows = p.kernel[0] * p.kernel[1];
  dim_t all_lines = p.to[0] * p.to[1], plane = all_lines * p.to[2];
  dim_t from_plane = conv_geometry::volume(p.from);
  bool gathers_images = plane <= conv_costs::most_positions;
  bool is_product = detail::is_product(p.kernel, p.stride, p.padding, p.from, p.to);
  dim_t channels, depth;                                 // of a block
  dim_t images, lines, columns;                          // of a block
  dim_t pitch = 0;                                       // of a row that lines meet
  T *rows = nullptr, *across = nullptr, *met = nullptr;  // of x, of y, of what lines meet

  static constexpr dim_t slack = 32;  // Elements that copies may write or read too much.

  [[gnu::noinline]] conv_im2col(const conv_table<T>& table, const conv_step& s,
                                const conv_operands<T>& operands, dim_t most_channels)
      : tiles{table.tiles()},
        of{operands},
        p{s.pass},
        channels{even_part(p.sources, most_channels)},
        depth{channels * taps},
        images{1},
        lines{all_lines},
        columns{p.to[2]} {
    const auto at_least_one = [](dim_t n) { return n > 1 ? n : 1; };
    if (gathers_images) {
      const dim_t most =
          least(conv_costs::gathered_positions, conv_costs::gathered_elements / depth);
      images = even_part(p.batch, at_least_one(most / plane));
    } else {
      const dim_t most =
          at_least_one(least(conv_costs::most_block_positions, conv_costs::block_elements / depth));
      columns = even_part(columns, most);
      lines = even_part(lines, most / columns);
    }
    pitch = (columns - 1) * p.stride[2] + p.dilation[2] * (p.kernel[2] - 1) + 1;
  }

  /// Of images from number `image` on, or of one the lines from number `line` on, from column x on.
  struct block {
    dim_t image, images, line, lines, x, columns;
    dim_t positions() const { return images * lines * columns; }
  };
  /// f(block) for those of some images.
  template <class F>
  void each_block(dim_t begin, dim_t end, const F& f) const {
    for (dim_t i = begin; i < end; i += images)
      for (dim_t y = 0; y < all_lines; y += lines)
        for (dim_t x = 0; x < p.to[2]; x += columns)
          f(block{i, least(end - i, images), y, least(all_lines - y, lines), x,
                  least(p.to[2] - x, columns)});
  }
  /// Divides the calling thread's memory.
  void place(bool gathers) {
    const dim_t positions = images * lines * columns, size = positions * depth + slack,
                copied =
                    gathers ? channels * p.kernel[0] * met_rows(least(lines, p.to[1])) * pitch : 0;
    rows = conv_memory<T>(conv_use::beside,
                          slack + size + positions * p.results + slack + copied + slack) +
           slack;
    across = rows + size;
    met = across + positions * p.results + slack;
  }

  /// f(z, y, n, line) for the lines of a block: of each plane z those from y on, the first of which
  /// is number `line` of the block.
  template <class F>
  void each_plane(const block& b, const F& f) const {
    for (dim_t line = 0, n; line < b.lines; line += n) {
      const dim_t y = (b.line + line) % p.to[1];
      n = least(b.lines - line, p.to[1] - y);
      f((b.line + line) / p.to[1], y, n, line);
    }
  }

  /// The receptive fields of a block in channels c on, or in as many as there are.
  void gather(const block& b, dim_t c, dim_t some) const {
    T* to = rows;
    for (dim_t i = 0; i < b.images; ++i) {
      const T* const from = of.source + (b.image + i) * p.source_image + c * from_plane;
      if (is_product) {
        for (dim_t l = b.line; l < b.line + b.lines; ++l, to += b.columns * some)
          tiles.pack_across(to, some, from + l * p.to[2] + b.x, plane, b.columns, some);
        continue;
      }
      each_plane(b, [&](dim_t z, dim_t y, dim_t n, dim_t) {
        const bool apart = is_apart(n);
        const dim_t copies = apart ? p.kernel[1] : 1, height = met_rows(n) / copies;
        // What spills over a copy is written later.
        const dim_t together = p.kernel[0] * copies == 1 ? some : 1;
        T* copied = met;
        for (dim_t channel = 0; channel < some; channel += together)
          for (dim_t kz = 0; kz < p.kernel[0]; ++kz)
            for (dim_t ky = 0; ky < copies; ++ky, copied += height * pitch)
              copy_met(tiles, p, together, from + channel * from_plane, p.met(0, z, kz),
                       p.met(1, y, ky), p.met(2, b.x, 0), apart ? p.stride[1] : 1, 1, height, pitch,
                       copied, height * pitch);
        const dim_t bytes = p.dilation[2] == 1 ? p.kernel[2] * dim_t{sizeof(T)} : 65;
        const auto spread_line = bytes <= 16   ? &spread<16>
                                 : bytes <= 32 ? &spread<32>
                                 : bytes <= 64 ? &spread<64>
                                               : &spread<0>;
        for (dim_t l = 0; l < n; ++l, to += b.columns * some * taps)
          spread_line(*this, b.columns, some * p.kernel[0], copies * height * pitch,
                      (apart ? height : p.dilation[1]) * pitch,
                      met + l * (apart ? 1 : p.stride[1]) * pitch, to);
      });
    }
  }
  /// Whether what n lines meet is copied for each row of the kernel, which then are fewer rows.
  bool is_apart(dim_t n) const { return n * p.kernel[1] < reach(n); }
  dim_t met_rows(dim_t n) const { return least(n * p.kernel[1], reach(n)); }
  /// From the first row of the image that n lines meet to the last.
  dim_t reach(dim_t n) const {
    return (n - 1) * p.stride[1] + p.dilation[1] * (p.kernel[1] - 1) + 1;
  }
  /// The rows of a line's receptive fields in so many planes. They are copied by so many bytes,
  /// whatever they have: what spills over is written later.
  template <std::size_t Bytes>
  static void spread(const conv_im2col& all, dim_t positions, dim_t planes, dim_t plane_step,
                     dim_t row_step, const T* from, T* to) {
    const dim_t length = all.p.kernel[2], dilation = all.p.dilation[2], rows = all.p.kernel[1];
    // Loops of one turn would take longer.
    const dim_t outer = rows > 1 ? planes : 1, inner = rows > 1 ? rows : planes,
                step = rows > 1 ? row_step : plane_step;
    for (; positions > 0; --positions, from += all.p.stride[2]) {
      const T* plane = from;
      for (dim_t n = outer; n > 0; --n, plane += plane_step) {
        const T* row = plane;
        for (dim_t i = inner; i > 0; --i, row += step, to += length)
          if constexpr (Bytes > 0)
            std::memcpy(to, row, Bytes);
          else
            for (dim_t k = 0; k < length; ++k) to[k] = row[k * dilation];
      }
    }
  }
  /// Adds to the image at `to` what the positions of a line hand to it.
  void scatter_line(const T* from, dim_t at, dim_t x, dim_t positions, T* to) const {
    for (; positions > 0; --positions, ++x, from += depth) {
      const dim_t first = p.met(2, x, 0), d = p.dilation[2];
      const dim_t begin = first < 0 ? parts(-first, d) : 0,
                  end = least(p.kernel[2], parts(p.from[2] - first, d));
      const T* row = from;
      for (dim_t n = 0; n < kernel_rows; ++n, row += p.kernel[2]) {
        const dim_t z = p.met(0, at / p.to[1], n / p.kernel[1]),
                    y = p.met(1, at % p.to[1], n % p.kernel[1]);
        if (z < 0 || z >= p.from[0] || y < 0 || y >= p.from[1]) continue;
        T* target = to + (z * p.from[1] + y) * p.from[2] + first;
        for (dim_t c = 0; c < channels; ++c, target += from_plane)
          for (dim_t k = begin; k < end; ++k) target[k * d] += row[c * taps + k];
      }
    }
  }
  /// The same of a block whose rows are those of channels and kernel elements.
  void add_block(const block& b) const {
    const dim_t positions = b.positions();
    T* const result = of.result + b.image * p.source_image;
    each_plane(b, [&](dim_t z, dim_t y0, dim_t n, dim_t line) {
      for (dim_t k = 0; k < kernel_rows; ++k) {
        const dim_t at_z = p.met(0, z, k / p.kernel[1]), at_y = p.met(1, y0, k % p.kernel[1]);
        if (at_z < 0 || at_z >= p.from[0]) continue;
        const position_range y = positions_inside(n, at_y, p.stride[1], p.from[1]);
        for (dim_t i = y.begin; i < y.end; ++i)
          tiles.add_rows({channels, p.kernel[2], b.columns,
                          rows + k * p.kernel[2] * positions + (line + i) * b.columns,
                          taps * positions, positions,
                          result + (at_z * p.from[1] + at_y + i * p.stride[1]) * p.from[2],
                          from_plane, p.from[2], p.met(2, b.x, 0), p.dilation[2], p.stride[2]});
      }
    });
  }
  /// dy by positions.
  void gather_dy(const T* dy, const block& b) const {
    for (dim_t i = 0; i < b.images; ++i)
      tiles.pack_across(across + i * plane * p.results, p.results,
                        dy + (b.image + i) * p.result_image, plane, plane, p.results);
  }
  /// Runs f(begin, end) for images, whose blocks are parts of work.
  template <class F>
  void share_images(bool gathers, const F& f) const {
    const dim_t blocks = parts(p.batch, images);
    share_parts(blocks, grain_of(blocks, p.multiply_adds()), [&](dim_t begin, dim_t end) {
      conv_im2col mine = *this;
      mine.place(gathers);
      f(mine, begin * images, least(end * images, p.batch));
    });
  }

  /// A product for each image of a 1x1 convolution.
  void multiply_images(dim_t to, dim_t to_image, dim_t from, dim_t from_image, transpose turned,
                       const gemm_epilogue<T>& then) const {
    const auto some = [&](dim_t i, dim_t end) {
      for (; i < end; ++i) {
        make_product<T>({to, plane, from, of.weights, p.sources, of.source + i * from_image, plane,
                         of.result + i * to_image, plane, &then, T(1), T(0), turned,
                         transpose::no});
        if (of.then.scale != nullptr || of.then.residual != nullptr)
          of.finish(tiles, to, plane, i * to_image, plane, 0);
      }
    };
    // The last, too few for all threads, are each shared by them where an image is worth all.
    const bool shares =
        p.multiply_adds() >= p.batch * num_threads() * gemm_costs::products_for_thread;
    const dim_t whole = shares ? p.batch - p.batch % num_threads() : p.batch;
    share_parts(whole, grain_of(p.batch, p.multiply_adds()), some);
    some(whole, p.batch);
  }

  void forward() const {
    const conv_epilogue<T>& then = of.then;
    const bool later = then.scale != nullptr || then.residual != nullptr;
    gemm_epilogue<T> at_once{.bias = of.bias,
                             .function = later ? final_activation<T>{} : then.function};
    if (is_product && !gathers_images) {
      std::swap(at_once.bias, at_once.row_bias);
      return multiply_images(p.results, p.result_image, p.sources, p.source_image, transpose::no,
                             at_once);
    }
    gemm_call<T> product{plane,      p.results, depth,         nullptr,       depth,
                         of.weights, depth,     nullptr,       p.results,     &at_once,
                         T(1),       T(0),      transpose::no, transpose::yes};
    // Each image gets the bits that it has alone.
    const gemm_algorithm alone = gemm_algorithm_of(product);
    share_images(true, [&](const conv_im2col& mine, dim_t begin, dim_t end) {
      gemm_call<T> some = product;
      some.a = mine.rows, some.c = mine.across;
      mine.each_block(begin, end, [&](const block& b) {
        mine.gather(b, 0, channels);
        some.m = b.positions();
        make_product_part(alone, some);
        for (dim_t i = 0; i < b.images; ++i) {
          const dim_t at = (b.image + i) * p.result_image;
          tiles.place_across(p.results, plane, mine.across + i * plane * p.results, p.results,
                             nullptr, false, of.result + at, plane);
          if (later) of.finish(tiles, p.results, plane, at, plane, 0);
        }
      });
    });
  }

  void backward_data() const {
    if (is_product && !gathers_images)
      return multiply_images(p.sources, p.source_image, p.results, p.result_image, transpose::yes,
                             {.row_bias = of.bias});
    // By positions, or by channels and kernel elements.
    gemm_call<T> by_positions{plane,      depth, p.results,     nullptr,      p.results,
                              of.weights, depth, nullptr,       depth,        &no_epilogue<T>,
                              T(1),       T(0),  transpose::no, transpose::no};
    const gemm_algorithm alone = gemm_algorithm_of(by_positions);
    share_images(false, [&](const conv_im2col& mine, dim_t begin, dim_t end) {
      for (dim_t i = begin; i < end; ++i) {
        T* const to = of.result + i * p.source_image;
        if (of.bias != nullptr)
          tiles.fill_rows(p.sources, from_plane, of.bias, to, from_plane);
        else
          tiles.clear(to, p.sources * from_plane);
      }
      mine.each_block(begin, end, [&](const block& b) {
        const dim_t positions = b.positions();
        if (!gathers_images) {
          make_product<T>({depth, positions, p.results, of.weights, depth,
                           of.source + b.image * p.result_image + b.line * p.to[2] + b.x, plane,
                           mine.rows, positions, &no_epilogue<T>, T(1), T(0), transpose::yes,
                           transpose::no});
          return mine.add_block(b);
        }
        mine.gather_dy(of.source, b);
        gemm_call<T> some = by_positions;
        some.m = positions, some.a = mine.across, some.c = mine.rows;
        make_product_part(alone, some);
        const T* from = mine.rows;
        for (dim_t i = 0; i < b.images; ++i)
          for (dim_t l = 0; l < b.lines; ++l, from += b.columns * depth)
            scatter_line(from, b.line + l, b.x, b.columns,
                         of.result + (b.image + i) * p.source_image);
      });
    });
  }

  void backward_weights() const {
    const auto add = [this](dim_t c, const T* dy, bool dy_by_positions, dim_t positions, const T* x,
                            dim_t ldx, transpose by_channels, dim_t some, bool adds) {
      make_product<T>({p.results, some * taps, positions, dy, dy_by_positions ? p.results : plane,
                       x, ldx, of.result + c * taps, p.weight_result, &no_epilogue<T>, T(1),
                       T(adds), dy_by_positions ? transpose::yes : transpose::no, by_channels});
    };
    if (is_product && !gathers_images) {
      for (dim_t i = 0; i < p.batch; ++i)
        add(0, of.weights + i * p.result_image, false, plane, of.source + i * p.source_image,
            from_plane, transpose::yes, p.sources, of.accumulates || i > 0);
      return;
    }
    const dim_t jobs = parts(p.sources, channels);
    share_parts(jobs, grain_of(jobs, p.multiply_adds()), [&](dim_t begin, dim_t end) {
      conv_im2col mine = *this;
      mine.place(true);
      for (dim_t c = begin * channels; c < least(end * channels, p.sources); c += channels) {
        const dim_t some = least(p.sources - c, channels);
        bool adds = of.accumulates;
        mine.each_block(0, p.batch, [&](const block& b) {
          mine.gather(b, c, some);
          const T* dy = mine.across;
          if (gathers_images)
            mine.gather_dy(of.weights, b);
          else
            dy = of.weights + b.image * p.result_image + b.line * p.to[2] + b.x;
          add(c, dy, gathers_images, b.positions(), mine.rows, some * taps, transpose::no, some,
              adds);
          adds = true;
        });
      }
    });
  }
};

template <class T, conv_direction Direction>
bool run_im2col(const conv_table<T>& table, conv_step& step, const conv_operands<T>* of) {
  const conv_pass& p = step.pass;
  if (of == nullptr) return true;
  if constexpr (Direction == conv_direction::forward)
    conv_im2col<T>{table, step, *of, p.sources}.forward();
  else if constexpr (Direction == conv_direction::data)
    conv_im2col<T>{table, step, *of, p.sources}.backward_data();
  else
    conv_im2col<T>{table, step, *of, 1 + conv_costs::block_columns / p.taps()}.backward_weights();
  return true;
}

}  // namespace ikebana::cpu::detail
