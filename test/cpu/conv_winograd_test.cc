#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/conv/run.hpp"
#include "ikebana/cpu/threads.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;
using cpu::conv_geometry;

namespace {

struct layer {
  dim_t batch, inputs, height, width, outputs, padding;

  conv_geometry geometry() const {
    return {batch,
            inputs,
            outputs,
            1,
            {1, height, width},
            {1, height + 2 * padding - 2, width + 2 * padding - 2},
            {1, 3, 3},
            {1, 1, 1},
            {0, padding, padding},
            {1, 1, 1}};
  }
};

// Whole and partial tiles, panels, several blocks of channels, of tiles and of weights, rows of
// tiles that are split, every padding.
const layer layers[] = {{1, 32, 16, 16, 32, 1},  {2, 33, 13, 17, 37, 1},  {1, 40, 19, 30, 70, 0},
                        {2, 48, 23, 9, 50, 2},   {1, 32, 9, 611, 35, 1},  {3, 67, 12, 13, 48, 1},
                        {1, 16, 12, 12, 32, 1},  {1, 150, 12, 12, 33, 1}, {5, 64, 14, 14, 65, 1},
                        {1, 36, 11, 70, 130, 0}, {1, 32, 61, 10, 32, 1},  {2, 16, 19, 20, 29, 1},
                        {1, 20, 20, 16, 16, 1}};

std::size_t at(dim_t i) { return static_cast<std::size_t>(i); }

/// Calls f(index of x, index of w, index of y) for every product of the selected channels.
template <class Wanted, class F>
void for_each_product_of(const conv_geometry& g, Wanted wanted, F f) {
  const dim_t height = g.in[1], width = g.in[2], rows = g.out[1], columns = g.out[2];
  for (dim_t b = 0; b < g.batch; ++b)
    for (dim_t o = 0; o < g.out_channels; ++o)
      for (dim_t c = 0; c < g.in_channels; ++c)
        for (dim_t k = 0; k < 9 && wanted(o, g.out_channels) && wanted(c, g.in_channels); ++k)
          for (dim_t y = 0; y < rows; ++y) {
            const dim_t from = y + k / 3 - g.padding[1], shift = k % 3 - g.padding[2];
            if (from < 0 || from >= height) continue;
            const dim_t first = shift < 0 ? -shift : 0,
                        last = width - shift < columns ? width - shift : columns;
            for (dim_t x = first; x < last; ++x)
              f(((b * g.in_channels + c) * height + from) * width + x + shift,
                (o * g.in_channels + c) * 9 + k,
                ((b * g.out_channels + o) * rows + y) * columns + x);
          }
}

template <class F>
void for_each_product(const conv_geometry& g, F f) {
  for_each_product_of(
      g, [](dim_t, dim_t) { return true; }, f);
}

/// Restores the setting that it finds.
struct exactly {
  explicit exactly(bool exact) { ikebana::set_exact_convolution(exact); }
  exactly(const exactly&) = delete;
  exactly& operator=(const exactly&) = delete;
  ~exactly() { ikebana::set_exact_convolution(false); }
};

bool same_bits(const guarded<float>& a, const guarded<float>& b) {
  bool same = a.size() == b.size();
  for (dim_t i = 0; same && i < a.size(); ++i) same = a[i] == b[i];
  return same;
}

}  // namespace

TEST_CASE("Winograd's convolution, forward and backward by data, with all that follows it") {
  generator r(81);
  for (const layer& l : layers) {
    const conv_geometry g = l.geometry();
    const dim_t in_plane = conv_geometry::volume(g.in), out_plane = conv_geometry::volume(g.out);
    const dim_t nx = g.batch * g.in_channels * in_plane, ny = g.batch * g.out_channels * out_plane,
                nw = g.out_channels * g.in_channels * 9;
    const guarded<float> x(nx, r), w(nw, r), dy(ny, r), bias(g.out_channels, r),
        scale(g.out_channels, r), residual(ny, r), x_bias(g.in_channels, r);
    std::vector<double> ey(at(ny)), edx(at(nx)), erelu(at(ny)), eall(at(ny)), ebiased(at(nx));
    for_each_product(g, [&](dim_t i, dim_t j, dim_t o) {
      ey[at(o)] += static_cast<double>(x[i]) * static_cast<double>(w[j]);
      edx[at(i)] += static_cast<double>(dy[o]) * static_cast<double>(w[j]);
    });
    for (dim_t o = 0; o < ny; ++o) {
      const dim_t c = o / out_plane % g.out_channels;
      const double b = static_cast<double>(bias[c]);
      erelu[at(o)] = std::fmax(ey[at(o)] + b, 0);
      eall[at(o)] = std::tanh(ey[at(o)] * static_cast<double>(scale[c]) + b +
                              static_cast<double>(residual[o]));
    }
    for (dim_t i = 0; i < nx; ++i)
      ebiased[at(i)] = edx[at(i)] + static_cast<double>(x_bias[i / in_plane % g.in_channels]);
    // For outputs of about the size of the root of the number of products.
    const auto tolerance = [](dim_t channels) {
      return rounding<float> * 100 * std::sqrt(static_cast<double>(channels));
    };
    const double forward = tolerance(g.in_channels), backward = tolerance(g.out_channels);
    INFO("channels " << g.in_channels << " to " << g.out_channels << " of " << g.in[1] << " by "
                     << g.in[2] << ", padding " << g.padding[1]);
    for_each_set([&] {
      const float garbage = std::numeric_limits<float>::quiet_NaN();
      guarded<float> y(ny, garbage), relu(ny, garbage), all(ny, garbage), dx(nx, garbage),
          biased(nx, garbage);
      cpu::conv_forward<float>(g, x.data(), w.data(), nullptr, y.data());
      cpu::conv_forward<float>(g, x.data(), w.data(), bias.data(), relu.data(),
                               {nullptr, cpu::activation::relu});
      cpu::conv_forward<float>(g, x.data(), w.data(), bias.data(), all.data(),
                               {residual.data(), cpu::activation::tanh, scale.data()});
      cpu::conv_backward_data<float>(g, dy.data(), w.data(), dx.data());
      cpu::conv_backward_data<float>(g, dy.data(), w.data(), biased.data(), x_bias.data());
      CHECK(all_close(y, ey, forward));
      CHECK(all_close(relu, erelu, forward));
      CHECK(all_close(all, eall, forward));
      CHECK(all_close(dx, edx, backward));
      CHECK(all_close(biased, ebiased, backward));
      for (const auto* a : {&y, &relu, &all, &dx, &biased}) CHECK(a->intact());
    });
  }
}

TEST_CASE("Winograd's convolution is left out where exactness is asked for") {
  const conv_geometry g = layer{1, 64, 24, 24, 64, 1}.geometry();
  const dim_t n = 64 * 24 * 24;
  generator r(82);
  const guarded<float> x(n, r), w(64 * 64 * 9, r);
  std::vector<double> expected(at(n));
  for_each_product(g, [&](dim_t i, dim_t j, dim_t o) {
    expected[at(o)] += static_cast<double>(x[i]) * static_cast<double>(w[j]);
  });
  const auto error = [&](const guarded<float>& y) {
    double sum = 0;
    for (dim_t i = 0; i < n; ++i) sum += std::pow(static_cast<double>(y[i]) - expected[at(i)], 2);
    return std::sqrt(sum / static_cast<double>(n));
  };
  for_each_set([&] {
    guarded<float> fast(n), exact(n);
    cpu::conv_forward<float>(g, x.data(), w.data(), nullptr, fast.data());
    {
      const exactly asked(true);
      CHECK(ikebana::exact_convolution());
      cpu::conv_forward<float>(g, x.data(), w.data(), nullptr, exact.data());
    }
    CHECK(!ikebana::exact_convolution());
    // Outputs are about 8 in size.
    CHECK(error(exact) < 4 * 8 * rounding<float>);
    CHECK(error(fast) < 12 * 8 * rounding<float>);
    if (cpu::active_instruction_set() >= cpu::instruction_set::avx2)
      CHECK(error(exact) < error(fast));
  });
}

TEST_CASE("Winograd's convolution gives an image the same bits in any batch, on any threads") {
  for (const layer& l :
       {layer{7, 40, 14, 18, 50, 1}, layer{2, 64, 30, 33, 40, 1}, layer{3, 140, 13, 13, 34, 0}}) {
    const conv_geometry g = l.geometry();
    const dim_t nx = g.in_channels * conv_geometry::volume(g.in),
                ny = g.out_channels * conv_geometry::volume(g.out);
    generator r(83);
    const guarded<float> x(g.batch * nx, r), w(g.out_channels * g.in_channels * 9, r),
        bias(g.out_channels, r);
    for_each_set([&] {
      guarded<float> y(g.batch * ny), shared(g.batch * ny), alone(g.batch * ny);
      cpu::conv_forward<float>(g, x.data(), w.data(), bias.data(), y.data());
      {
        const ikebana::scoped_num_threads threads(3);
        cpu::conv_forward<float>(g, x.data(), w.data(), bias.data(), shared.data());
      }
      conv_geometry single = g;
      single.batch = 1;
      for (dim_t b = 0; b < g.batch; ++b)
        cpu::conv_forward<float>(single, x.data() + b * nx, w.data(), bias.data(),
                                 alone.data() + b * ny);
      CHECK(same_bits(y, shared));
      CHECK(same_bits(y, alone));
      CHECK(shared.intact());
    });
  }
}

TEST_CASE("Winograd's convolution spreads what is not finite over a tile, and no farther") {
  const conv_geometry g = layer{2, 32, 20, 24, 32, 1}.geometry();
  const dim_t plane = 20 * 24, n = 2 * 32 * plane;
  generator r(84);
  guarded<float> x(n, r);
  const guarded<float> w(32 * 32 * 9, r);
  x[5 * plane + 9 * 24 + 10] = std::numeric_limits<float>::infinity();
  for_each_set([&] {
    guarded<float> y(n);
    cpu::conv_forward<float>(g, x.data(), w.data(), nullptr, y.data());
    dim_t wrong = 0;
    for (dim_t i = 0; i < n; ++i) {
      const dim_t row = i % plane / 24, column = i % 24;
      const bool sees = i < 32 * plane && std::abs(row - 9) <= 1 && std::abs(column - 10) <= 1;
      const bool near = i < 32 * plane && std::abs(row - 9) <= 4 && std::abs(column - 10) <= 4;
      wrong += sees ? std::isfinite(y[i]) : !near && !std::isfinite(y[i]);
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE(
    "Winograd's error is relative to the largest input of a tile, also where it is not read") {
  const conv_geometry g = layer{1, 32, 20, 24, 32, 1}.geometry();
  const dim_t plane = 20 * 24, n = 32 * plane;
  generator r(87);
  guarded<float> x(n, r);
  const guarded<float> w(32 * 32 * 9, r);
  for_each_set([&] {
    const auto convolved = [&](float large) {
      x[5 * plane + 9 * 24 + 10] = large;
      guarded<float> y(n);
      cpu::conv_forward<float>(g, x.data(), w.data(), nullptr, y.data());
      return y;
    };
    for (bool exact : {false, true}) {
      INFO("exact " << exact);
      ikebana::set_exact_convolution(exact);
      const guarded<float> small = convolved(1), large = convolved(1e8f);
      ikebana::set_exact_convolution(false);
      float beside = 0, far = 0;
      for (dim_t i = 0; i < n; ++i) {
        const dim_t rows = std::abs(i % plane / 24 - 9), columns = std::abs(i % 24 - 10);
        if (rows <= 1 && columns <= 1) continue;
        float& worst = rows <= 4 && columns <= 4 ? beside : far;
        worst = std::max(worst, std::abs(large[i] - small[i]));
      }
      // Some ulp of 1e8, which are 8 each.
      CHECK(beside <= (exact ? 0.0f : 128.0f));
      CHECK(far == 0);
    }
  });
}

// As above; many small images; as many channels as are summed at once, and more.
const layer gradient_layers[] = {{1, 32, 32, 33, 32, 1}, {3, 37, 21, 27, 45, 0},
                                 {3, 33, 14, 14, 70, 1}, {1, 40, 25, 31, 33, 2},
                                 {1, 32, 9, 611, 35, 1}, {1, 267, 15, 13, 131, 1},
                                 {9, 65, 15, 14, 67, 1}, {2, 48, 61, 10, 50, 1}};

TEST_CASE("Winograd's gradient of the weights, overwriting and accumulating, on any threads") {
  generator r(85);
  for (const layer& l : gradient_layers) {
    const conv_geometry g = l.geometry();
    const dim_t in_plane = conv_geometry::volume(g.in), out_plane = conv_geometry::volume(g.out);
    const dim_t nx = g.batch * g.in_channels * in_plane, ny = g.batch * g.out_channels * out_plane,
                nw = g.out_channels * g.in_channels * 9;
    const guarded<float> x(nx, r), dy(ny, r), before(nw, r);
    // All products of some weights: the first and last of each, and the panels' ends.
    std::vector<double> expected(at(nw), std::nan(""));
    const auto some = [](dim_t i, dim_t n) { return i < 2 || i + 2 >= n || i % 16 == 15; };
    for (dim_t o = 0; o < g.out_channels; ++o)
      for (dim_t c = 0; c < g.in_channels; ++c)
        if (some(o, g.out_channels) && some(c, g.in_channels))
          for (dim_t k = 0; k < 9; ++k) expected[at((o * g.in_channels + c) * 9 + k)] = 0;
    for_each_product_of(g, some, [&](dim_t i, dim_t j, dim_t o) {
      expected[at(j)] += static_cast<double>(x[i]) * static_cast<double>(dy[o]);
    });
    const double tolerance =
        rounding<float> * 100 * std::sqrt(static_cast<double>(g.batch * out_plane));
    INFO("channels " << g.in_channels << " to " << g.out_channels << " of " << g.in[1] << " by "
                     << g.in[2] << ", padding " << g.padding[1]);
    for_each_set([&] {
      const float garbage = std::numeric_limits<float>::quiet_NaN();
      guarded<float> dw(nw, garbage), sum(nw), shared(nw, garbage), shared_sum(nw);
      for (dim_t i = 0; i < nw; ++i) sum[i] = shared_sum[i] = before[i];
      const auto run = [&](guarded<float>& fresh, guarded<float>& added) {
        cpu::conv_backward_weights<float>(g, x.data(), dy.data(), fresh.data(), false);
        cpu::conv_backward_weights<float>(g, x.data(), dy.data(), added.data(), true);
      };
      run(dw, sum);
      const bool by_tiles = cpu::active_instruction_set() >= cpu::instruction_set::avx2;
      for (const int n : {2, 3, 7}) {
        if (!by_tiles) break;
        const ikebana::scoped_num_threads threads(n);
        for (dim_t i = 0; i < nw; ++i) shared_sum[i] = before[i];
        run(shared, shared_sum);
        CHECK(same_bits(dw, shared));
        CHECK(same_bits(sum, shared_sum));
      }
      dim_t far = 0;
      for (dim_t i = 0; i < nw; ++i) {
        far += !(std::fabs(sum[i] - before[i] - dw[i]) <= static_cast<float>(tolerance));
        if (!std::isnan(expected[at(i)]))
          far += !(std::fabs(static_cast<double>(dw[i]) - expected[at(i)]) <= tolerance);
      }
      CHECK(far == 0);
      for (const auto* a : {&dw, &sum, &shared, &shared_sum}) CHECK(a->intact());
    });
  }
}

TEST_CASE("Winograd's gradient of the weights is left out where exactness is asked for") {
  const conv_geometry g = layer{2, 64, 28, 28, 64, 1}.geometry();
  const dim_t n = 2 * 64 * 28 * 28, nw = 64 * 64 * 9;
  generator r(86);
  const guarded<float> x(n, r), dy(n, r);
  for_each_set([&] {
    guarded<float> fast(nw), exact(nw), direct(nw);
    cpu::conv_backward_weights<float>(g, x.data(), dy.data(), fast.data(), false);
    // As nn::conv does if its type rules Winograd out.
    auto table = cpu::conv_algorithms_of<float>(cpu::conv_direction::weights);
    table.remove(cpu::conv_algorithm::winograd);
    cpu::conv_backward_weights<float>(g, x.data(), dy.data(), direct.data(), false, table);
    {
      const exactly asked(true);
      cpu::conv_backward_weights<float>(g, x.data(), dy.data(), exact.data(), false);
    }
    CHECK(same_bits(exact, direct));
    const bool by_tiles = cpu::active_instruction_set() >= cpu::instruction_set::avx2;
    CHECK(same_bits(fast, direct) != by_tiles);
    double error = 0;
    for (dim_t i = 0; i < nw; ++i)
      error += std::pow(static_cast<double>(fast[i]) - static_cast<double>(exact[i]), 2);
    // Outputs are about 13 in size.
    CHECK(std::sqrt(error / static_cast<double>(nw)) < 12 * 13 * rounding<float>);
  });
}
