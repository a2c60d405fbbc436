#include "ikebana/cpu/verbose.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/grouped_conv.hpp"
#include "ikebana/cpu/pool.hpp"
#include "ikebana/cpu/threads.hpp"

namespace cpu = ikebana::cpu;
using ikebana::dim_t;

namespace {

/// The lines about plans that f prints to stderr, where an emulator has warnings, too.
template <class F>
std::string printed_by(const F& f) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fflush(stderr);
  const int kept = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  f();
  std::fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  std::rewind(file);
  std::string text, line;
  for (int c; (c = std::fgetc(file)) != EOF;) {
    line += static_cast<char>(c);
    if (c != '\n') continue;
    if (line.starts_with("ikebana_verbose,")) text += line;
    line.clear();
  }
  std::fclose(file);
  return text;
}

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
  cpu::grouped_conv_forward<float>(g, x.data(), w.data(), nullptr, y.data());
  cpu::grouped_conv_backward_data<float>(g, y.data(), w.data(), x.data());
  cpu::grouped_conv_backward_weights<float>(g, x.data(), y.data(), w.data(), false);
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
                    start = "ikebana_verbose,conv," + isa + ",f32,",
                    of_weights = isa == "sse42" || isa == "neon" ? "channels in lanes" : "bands";
  CHECK(dense == start + "forward" + problem + "bands" + work + start + "data as forward" +
                     problem + "bands" + work + start + "weights" + problem + of_weights + work);
  CHECK(depthwise.find(start +
                       "forward 2x1x1x9x9 to 1x1x9x9 kernel 1x3x3 stride 1x1x1,depthwise ") == 0);
  CHECK(depthwise.find(start + "data 2x1x1x9x9 ") != std::string::npos);
  CHECK(depthwise.find(start + "weights 2x1x1x9x9 ") != std::string::npos);
  CHECK(printed_by([] { convolve(2, 10); }).empty());
}

TEST_CASE("a line for each plan of a product and of a pool is printed if asked for") {
  const std::string isa = name(cpu::active_instruction_set());
  cpu::set_verbose(true);
  CHECK(printed_by([] { multiply(100, 30, 90); }) ==
        "ikebana_verbose,gemm," + isa + ",f32,nn 100x30x90,tiles in place,0 bytes\n");
  CHECK(printed_by(pool) == "ikebana_verbose,pool," + isa +
                                ",maximum,2x1x8x8 to 1x4x4 kernel 1x2x2 stride 1x2x2,halves,\n");
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
