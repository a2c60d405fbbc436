#include "ikebana/cpu/verbose.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/exact_convolution.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/pool.hpp"
#include "ikebana/cpu/threads.hpp"
#include "test/support/printed_plans.hpp"

namespace cpu = ikebana::cpu;
using ikebana::dim_t;

namespace {

void multiply(dim_t m, dim_t n, dim_t k) {
  const std::vector<float> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n));
  std::vector<float> c(static_cast<std::size_t>(m * n));
  cpu::gemm(cpu::transpose::no, cpu::transpose::no, m, n, k, 1.F, a.data(), k, b.data(), n, 0.F,
            c.data(), n);
}

void pool() {
  const std::vector<float> x(2 * 8 * 8);
  std::vector<float> y(2 * 4 * 4);
  cpu::max_pool_forward<float>(
      {2, {1, 8, 8}, {1, 4, 4}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}}, x.data(), y.data(),
      nullptr);
}

/// All directions of a convolution of two groups, or a depthwise one.
void convolve(dim_t groups, dim_t channels) {
  const cpu::conv_geometry g{2,         channels,  channels,  groups,    {1, 9, 9},
                             {1, 9, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}};
  std::vector<float> x(static_cast<std::size_t>(2 * channels * 81)),
      y = x, w(static_cast<std::size_t>(channels * channels / groups * 9));
  cpu::conv_forward<float>(g, x.data(), w.data(), nullptr, y.data());
  cpu::conv_backward_data<float>(g, y.data(), w.data(), x.data());
  cpu::conv_backward_weights<float>(g, x.data(), y.data(), w.data(), false);
}

}  // namespace

TEST_CASE("a line for each plan of a convolution is printed if asked for") {
  const std::string isa = name(cpu::active_instruction_set());
  cpu::set_verbose(true);
  const std::string dense = printed_by([] { convolve(2, 10); }),
                    depthwise = printed_by([] { convolve(9, 9); });
  cpu::set_verbose(false);
  // Once for both groups, which are computed alike.
  const std::string problem = " 2x5x1x9x9 to 5x1x9x9 kernel 1x3x3 stride 1x1x1,",
                    work = ",36450 multiply-adds\n",
                    start = "ikebana_verbose,conv," + isa + ",f32,";
  // Behind them, the products of the last.
  CHECK(dense.starts_with(start + "forward" + problem + "bands" + work + start + "data as forward" +
                          problem + "bands" + work + start + "weights" + problem + "im2col" +
                          work));
  CHECK(depthwise.find(start +
                       "forward 2x1x1x9x9 to 1x1x9x9 kernel 1x3x3 stride 1x1x1,depthwise ") == 0);
  CHECK(depthwise.find(start + "data 2x1x1x9x9 ") != std::string::npos);
  CHECK(depthwise.find(start + "weights 2x1x1x9x9 ") != std::string::npos);
  CHECK(printed_by([] { convolve(2, 10); }).empty());
}

TEST_CASE("a plan that is kept is made once for what it depends on") {
  const auto run = [room = std::array<std::uint64_t, 800>{}](dim_t batch, dim_t stride) mutable {
    const dim_t out = (9 - 1) / stride + 1;
    const cpu::conv_geometry g{
        batch,     3,        5, 1, {1, 9, 9}, {1, out, out}, {1, 3, 3}, {1, stride, stride},
        {0, 1, 1}, {1, 1, 1}};
    std::vector<float> x(2 * 3 * 81), y(2 * 5 * 81), w(5 * 3 * 9);
    const std::span<std::byte> all = std::as_writable_bytes(std::span(room));
    return printed_by([&] {
             cpu::conv_forward<float>(g, x.data(), w.data(), nullptr, y.data(), {},
                                      cpu::conv_algorithms_of<float>(cpu::conv_direction::forward),
                                      all);
           }).size() > 0;
  };
  cpu::set_verbose(true);
  auto made = run;
  CHECK(made(2, 1));
  CHECK(!made(2, 1));
  CHECK(made(1, 1));
  CHECK(made(1, 2));
  CHECK(!made(1, 2));
  {
    const ikebana::scoped_num_threads threads(3);
    CHECK(made(1, 2));
    CHECK(!made(1, 2));
  }
  CHECK(made(1, 2));
  ikebana::set_exact_convolution(true);
  CHECK(made(1, 2));
  ikebana::set_exact_convolution(false);
  CHECK(made(1, 2));
  cpu::set_verbose(false);
}

TEST_CASE("a line for each plan of a product and of a pool is printed if asked for") {
  const std::string isa = name(cpu::active_instruction_set());
  cpu::set_verbose(true);
  CHECK(printed_by([] { multiply(100, 30, 90); }) ==
        "ikebana_verbose,gemm," + isa + ",f32,nn 100x30x90,tiles in place,0 bytes\n");
  CHECK(printed_by(pool) ==
        "ikebana_verbose,pool," + isa +
            ",maximum,2x1x8x8 to 1x4x4 kernel 1x2x2 stride 1x2x2,halves,128 elements\n");
  // One plan, of which each thread runs a part.
  const ikebana::scoped_num_threads threads(2);
  CHECK(printed_by([] { multiply(300, 300, 100); }).find('\n') ==
        printed_by([] { multiply(300, 300, 100); }).size() - 1);
  cpu::set_verbose(false);
  CHECK(printed_by([] { multiply(100, 30, 90); }).empty());
  CHECK(printed_by(pool).empty());
}

TEST_CASE("the environment variable is read once, and means 1") {
  const char* const kept = std::getenv("IKEBANA_VERBOSE");
  const std::string before = kept != nullptr ? kept : "";
  for (const char* value : {"1", "0", "", "yes"}) {
    setenv("IKEBANA_VERBOSE", value, 1);
    cpu::detail::verbosity = -1;
    CHECK(cpu::is_verbose() == (std::string(value) == "1"));
    setenv("IKEBANA_VERBOSE", "1", 1);
    CHECK(cpu::is_verbose() == (std::string(value) == "1"));
  }
  unsetenv("IKEBANA_VERBOSE");
  cpu::detail::verbosity = -1;
  CHECK(!cpu::is_verbose());
  if (kept != nullptr) setenv("IKEBANA_VERBOSE", before.c_str(), 1);
}

TEST_CASE("a line that is too long is cut") {
  const std::string text = printed_by(
      [] { cpu::detail::print_plan("f", "a", "c", "%s", std::string(500, 'x').c_str()); });
  CHECK(text == "ikebana_verbose,f," + std::string(255, 'x') + ",a,c\n");
}
