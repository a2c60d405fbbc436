#include "ikebana/replicate/utils/verify_parameters.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/replica_states.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dtype;
using ike::shape;
using ike::threads;
using list = std::vector<ike::parameter_identity>;

namespace {

/// The text of each rank for the list that `make(rank)` returns.
template <class Make>
std::vector<std::string> said(int ranks, const Make& make) {
  return ike::launch(threads{ranks}, [&](ike::process_group auto& group) -> std::string {
    try {
      const list mine = make(group.rank());
      ike::verify_parameters(std::span<const ike::parameter_identity>{mine}, group);
    } catch (const ike::state_error& e) {
      return e.what();
    }
    return "equal";
  });
}

template <class Make>
void check_all_say(int ranks, const std::string& text, const Make& make) {
  const auto texts = said(ranks, make);
  for (const std::string& s : texts) CHECK(s == text);
}

const list two{{{"fc.weight"}, dtype::float32, shape{2, 3}},
               {{"fc.bias"}, dtype::float32, shape{2}}};

}  // namespace

TEST_CASE("equal lists pass on any number of ranks") {
  for (int ranks : {1, 2, 3}) check_all_say(ranks, "equal", [](int) { return two; });
  check_all_say(2, "equal", [](int) { return list{}; });
}

TEST_CASE("every rank, rank 0 too, names the first shape that differs") {
  for (int other : {1, 2})
    check_all_say(3,
                  "verify_parameters: rank 0 and rank " + std::to_string(other) +
                      " have different models: the first difference is at fc.weight: rank 0 has "
                      "float32 [2, 3], rank " +
                      std::to_string(other) + " has float32 [2, 4]",
                  [&](int rank) {
                    list mine = two;
                    if (rank == other) {
                      mine[0].extents = shape{2, 4};
                      mine[1].extents = shape{9};
                    }
                    return mine;
                  });
}

TEST_CASE("element types are compared") {
  check_all_say(2,
                "verify_parameters: rank 0 and rank 1 have different models: the first difference "
                "is at fc.bias: rank 0 has float32 [2], rank 1 has float64 [2]",
                [](int rank) {
                  list mine = two;
                  if (rank == 1) mine[1].type = dtype::float64;
                  return mine;
                });
}

TEST_CASE("paths and their order are compared") {
  check_all_say(2,
                "verify_parameters: rank 0 and rank 1 have different models: the first difference "
                "is at fc.bias: rank 0 has fc.bias float32 [2], rank 1 has fc.offset float32 [2]",
                [](int rank) {
                  list mine = two;
                  if (rank == 1) mine[1].path = ike::path_text{"fc.offset"};
                  return mine;
                });
  check_all_say(3,
                "verify_parameters: rank 0 and rank 2 have different models: the first difference "
                "is at fc.weight: rank 0 has fc.weight float32 [2, 3], rank 2 has fc.bias float32 "
                "[2]",
                [](int rank) {
                  list mine = two;
                  if (rank == 2) std::swap(mine[0], mine[1]);
                  return mine;
                });
}

TEST_CASE("ranks with different numbers all say how many each has, and the first that is missing") {
  for (int shorter : {0, 1, 2}) {
    std::string counts;
    for (int r = 0; r < 3; ++r)
      counts +=
          (r == 0 ? "rank " : ", rank ") + std::to_string(r) + " has " + (r == shorter ? "1" : "2");
    check_all_say(3,
                  "verify_parameters: ranks have different numbers of parameters and buffers: " +
                      counts + "; the first difference is at fc.bias, which is not on every rank",
                  [&](int rank) {
                    list mine = two;
                    if (rank == shorter) mine.pop_back();
                    return mine;
                  });
  }
  check_all_say(2,
                "verify_parameters: ranks have different numbers of parameters and buffers: rank 0 "
                "has 0, rank 1 has 2; the first difference is at fc.weight, which is not on every "
                "rank",
                [](int rank) { return rank == 0 ? list{} : two; });
}

TEST_CASE("the parameters and buffers of models are compared, after the name of who asks") {
  constexpr auto net =
      ike::sequential("fc"_m = ike::linear<3, 2>{}, "norm"_m = ike::batch_norm1d<2>{});
  constexpr auto other =
      ike::sequential("fc"_m = ike::linear<3, 2>{},
                      "norm"_m = ike::batch_norm1d<2, ike::track_running_stats<false>>{});
  const auto text = ike::launch(threads{2}, [&](ike::process_group auto& group) -> std::string {
    const auto same = ike::initialize<float, shape{4, 3}>(net, ike::seed{1});
    ike::verify_parameters(same, group);
    try {
      if (group.rank() == 0)
        ike::verify_parameters(same, group, "replicate");
      else
        ike::verify_parameters(ike::initialize<float, shape{4, 3}>(other, ike::seed{1}), group,
                               "replicate");
    } catch (const ike::state_error& e) {
      return e.what();
    }
    return "equal";
  });
  for (const std::string& s : text)
    CHECK(s ==
          "replicate: ranks have different numbers of parameters and buffers: rank 0 has 7, rank 1 "
          "has 4; the first difference is at norm.running_mean, which is not on every rank");
}

TEST_CASE("what a policy ignores may differ, and nothing else") {
  using policy = ike::replicate_policy<ike::ignored<"norm">>;
  constexpr auto net = [](auto fc, auto norm) {
    return ike::sequential("fc"_m = fc, "norm"_m = norm);
  };
  constexpr ike::batch_norm1d<2> norm;
  constexpr ike::batch_norm1d<2, ike::track_running_stats<false>> other_norm;
  const auto said = [&](auto other) {
    return ike::launch(threads{2}, [&](ike::process_group auto& group) -> std::string {
      const auto check = [&](auto module) {
        ike::detail::verify_states<policy>(
            ike::initialize<float, shape{4, 3}>(module, ike::seed{1}), group, "replicate");
      };
      try {
        if (group.rank() == 0)
          check(net(ike::linear<3, 2>{}, norm));
        else
          check(other);
      } catch (const ike::state_error& e) {
        return e.what();
      }
      return "equal";
    });
  };
  for (const std::string& s : said(net(ike::linear<3, 2>{}, other_norm))) CHECK(s == "equal");
  for (const std::string& s : said(net(ike::linear<3, 2, ike::bias<false>>{}, norm)))
    CHECK(s.starts_with("replicate: ranks have different numbers of parameters and buffers: "));
}
