// The parameters of a network are the same bits, in whatever order and by whichever rank they are
// initialised.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/replicate/launch.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

constexpr shape image{dynamic, 2, 5, 5};
constexpr ike::seed s{42};

constexpr auto block =
    ike::sequential("conv"_m = ike::lazy_conv2d<3, ike::kernel<3>>{}, "relu"_m = ike::relu{});
constexpr auto whole = ike::sequential("block"_m = block, "flatten"_m = ike::flatten{},
                                       "fc"_m = ike::lazy_linear<4>{});
constexpr auto written_out =
    ike::sequential("block"_m = ike::sequential("conv"_m = ike::conv2d<2, 3, ike::kernel<3>>{},
                                                "relu"_m = ike::relu{}),
                    "flatten"_m = ike::flatten{}, "fc"_m = ike::linear<27, 4>{});

/// All of a state as text, names and bits.
std::string bits_of(const ike::state_dict& dict) {
  std::string all;
  for (const auto& e : dict) {
    all += e.name;
    all.append(reinterpret_cast<const char*>(e.bytes.data()), e.bytes.size());
  }
  return all;
}

template <class M>
std::string bits(const M& m) {
  const auto model = ike::initialize<float, image>(m, s);
  return bits_of(ike::get_state_dict(model));
}

}  // namespace

TEST_CASE("lazy or written out, or at the first call") {
  const std::string expected = bits(whole);
  CHECK(bits(written_out) == expected);
  ike::lazy_model holder{whole, s};
  holder(ike::ones<float, shape{1, 2, 5, 5}>());
  CHECK(bits_of(ike::get_state_dict(holder)) == expected);
}

TEST_CASE("whole, or piece by piece, in any order") {
  const auto model = ike::initialize<float, image>(whole, s);
  const ike::state_view expected = ike::get_state_dict(model);
  const auto compare = [&](const ike::state_dict& piece, const std::string& path) {
    for (const auto& e : piece) {
      const auto& own = expected.at(path + "." + e.name);
      REQUIRE(own.extents == e.extents);
      CHECK_MESSAGE(std::memcmp(own.bytes.data(), e.bytes.data(), e.bytes.size()) == 0, own.name);
    }
  };
  const auto fc = ike::initialize<float, shape{dynamic, 27}>(ike::lazy_linear<4>{}, s.at("fc"));
  compare(ike::get_state_dict(fc), "fc");
  const auto first = ike::initialize<float, image>(block, s.at("block"));
  compare(ike::get_state_dict(first), "block");
  const auto conv =
      ike::initialize<float, image>(ike::lazy_conv2d<3, ike::kernel<3>>{}, s.at("block.conv"));
  compare(ike::get_state_dict(conv), "block.conv");
  static_assert(s.at("block.conv") == s.at("block").at("conv"));
}

TEST_CASE("on any rank") {
  const std::string expected = bits(whole);
  std::mutex lock;
  std::vector<std::string> seen;
  ike::launch(ike::threads{3}, [&](ike::thread_group&) {
    const std::string own = bits(whole);
    const std::lock_guard hold(lock);
    seen.push_back(own);
  });
  CHECK(seen == std::vector<std::string>(3, expected));
}

TEST_CASE("under any instruction set") {
  const ike::cpu::instruction_set before = ike::cpu::active_instruction_set();
  const std::string expected = bits(whole);
  for (const auto isa : ike::cpu::instruction_sets) {
    if (!ike::cpu::supports(isa)) continue;
    ike::cpu::set_instruction_set(isa);
    CHECK_MESSAGE(bits(whole) == expected, ike::cpu::name(isa));
  }
  ike::cpu::set_instruction_set(before);
}

namespace {

/// Sums that are in lanes on every set, on some, and on none.
constexpr auto dense = ike::sequential("fc1"_m = ike::lazy_linear<200>{}, "relu1"_m = ike::relu{},
                                       "fc2"_m = ike::lazy_linear<70>{}, "relu2"_m = ike::relu{},
                                       "fc3"_m = ike::lazy_linear<40>{});

template <class T>
void check_exposed() {
  constexpr shape rows{dynamic, 300};
  auto kept = ike::initialize<T, rows>(dense, s);
  auto exposed = ike::initialize<T, rows>(dense, s);
  (void)exposed.parameters();
  kept.eval();
  exposed.eval();
  for (const ike::dim_t n : {1, 2, 7, 20, 70, 130}) {
    CAPTURE(n);
    const auto x = ike::uniform<T, rows>(ike::seed{9}, n);
    // The second call reads what the first one made of the weights.
    for (int call = 0; call < 2; ++call) {
      const auto a = kept(x), b = exposed(x);
      CHECK(std::memcmp(a.data(), b.data(), a.span().size_bytes()) == 0);
    }
  }
}

}  // namespace

TEST_CASE("whether transposed weights may be kept or not") {
  const auto before = ike::cpu::active_instruction_set();
  for (const auto set : ike::cpu::instruction_sets) {
    if (!ike::cpu::supports(set)) continue;
    ike::cpu::set_instruction_set(set);
    INFO(std::string(ike::cpu::name(set)));
    check_exposed<float>();
    check_exposed<double>();
  }
  ike::cpu::set_instruction_set(before);
}
