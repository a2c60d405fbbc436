#include "ikebana/replicate/utils/holds_tensors.hpp"

#include <doctest/doctest.h>

#include <array>
#include <boost/hana/define_struct.hpp>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace ike = ikebana;
using tensor = ike::tensor<float, ike::shape{2}>;
using ike::holds_tensors;

namespace {
struct batch {
  BOOST_HANA_DEFINE_STRUCT(batch, (std::string, name), (std::vector<tensor>, images));
};
struct label {
  BOOST_HANA_DEFINE_STRUCT(label, (std::string, name), (int, number));
};
struct not_adapted {
  tensor image;
};
}  // namespace

TEST_CASE("tensors are found at any depth, by type alone") {
  static_assert(holds_tensors<tensor>);
  static_assert(holds_tensors<tensor::const_view_type&>);
  static_assert(holds_tensors<const std::vector<std::tuple<int, tensor>>&>);
  static_assert(holds_tensors<std::pair<int, std::array<std::optional<tensor>, 2>>>);
  static_assert(holds_tensors<std::map<std::string, std::variant<int, tensor>>>);
  static_assert(holds_tensors<boost::hana::tuple<int, std::tuple<const tensor&>>>);
  static_assert(holds_tensors<std::span<tensor>>);
  static_assert(holds_tensors<std::set<tensor>>);
  static_assert(holds_tensors<batch>);
  static_assert(holds_tensors<std::vector<batch>>);
}

TEST_CASE("where there is none, none is found") {
  static_assert(!holds_tensors<int>);
  static_assert(!holds_tensors<const char*>);
  static_assert(!holds_tensors<std::string>);
  static_assert(!holds_tensors<std::tuple<>>);
  static_assert(!holds_tensors<std::map<std::string, std::vector<std::optional<double>>>>);
  static_assert(!holds_tensors<label>);
  static_assert(!holds_tensors<not_adapted>, "its members are not known");
}
