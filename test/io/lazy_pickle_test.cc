// PyTorch's tests of pickled lazy modules, with files: a lazy module remains lazy when it is saved
// and loaded, and a resolved one remains resolved.
#include <doctest/doctest.h>

#include <algorithm>

#include "ikebana/io/safetensors.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/conv_transpose.hpp"
#include "ikebana/nn/instance_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "test/support/scratch.hpp"

namespace ike = ikebana;
using ike::shape;

namespace {

template <shape In, class Lazy>
void check_pickle(const Lazy& module) {
  const scratch_directory scratch;
  const auto path = scratch.path() / "module.safetensors";
  ike::lazy_model written{module, ike::seed{1}};
  REQUIRE(written.has_uninitialized_params());
  ike::save(ike::get_state_dict(written), path);
  ike::lazy_model lazy{module, ike::seed{2}};
  ike::load_state_dict(lazy, ike::load(path));
  CHECK(lazy.has_uninitialized_params());
  for (const auto& e : ike::get_state_dict(written)) {
    const auto back = ike::get_state_dict(lazy).at(e.name);
    CHECK(back.uninitialized == e.uninitialized);
    CHECK(back.type == e.type);
    CHECK(back.extents == e.extents);
  }

  const auto x = ike::uniform<float, In>(ike::seed{3});
  written(x);
  written.train(false);
  const ike::tensor expected(written(x));
  ike::save(ike::get_state_dict(written), path);
  ike::lazy_model read{module, ike::seed{2}};
  ike::load_state_dict(read, ike::load(path));
  CHECK_FALSE(read.has_uninitialized_params());
  CHECK(read.printed() == written.printed());
  read.train(false);
  const ike::tensor got(read(x));
  CHECK(std::ranges::equal(got.span(), expected.span()));
  CHECK_FALSE(std::ranges::equal(got.span(), ike::tensor(lazy(x)).span()));
}

using k2 = ike::kernel<2>;
template <template <ike::dim_t, class...> class Norm>
constexpr Norm<ike::lazy, ike::affine<true>, ike::track_running_stats<true>> lazy_norm{};

}  // namespace

TEST_CASE("lazy_linear_pickle") { check_pickle<shape{5, 5}>(ike::lazy_linear<10>{}); }

TEST_CASE("lazy_conv1d_pickle") { check_pickle<shape{2, 3, 9}>(ike::lazy_conv1d<4, k2>{}); }
TEST_CASE("lazy_conv2d_pickle") { check_pickle<shape{2, 3, 5, 4}>(ike::lazy_conv2d<4, k2>{}); }
TEST_CASE("lazy_conv3d_pickle") { check_pickle<shape{2, 3, 4, 3, 3}>(ike::lazy_conv3d<4, k2>{}); }
TEST_CASE("lazy_conv_transpose1d_pickle") {
  check_pickle<shape{2, 3, 9}>(ike::lazy_conv_transpose1d<4, k2>{});
}
TEST_CASE("lazy_conv_transpose2d_pickle") {
  check_pickle<shape{2, 3, 5, 4}>(ike::lazy_conv_transpose2d<4, k2>{});
}
TEST_CASE("lazy_conv_transpose3d_pickle") {
  check_pickle<shape{2, 3, 4, 3, 3}>(ike::lazy_conv_transpose3d<4, k2>{});
}

TEST_CASE("lazy_batchnorm1d_pickle") { check_pickle<shape{4, 3}>(lazy_norm<ike::batch_norm1d>); }
TEST_CASE("lazy_batchnorm2d_pickle") {
  check_pickle<shape{4, 3, 2, 2}>(lazy_norm<ike::batch_norm2d>);
}
TEST_CASE("lazy_batchnorm3d_pickle") {
  check_pickle<shape{4, 3, 2, 2, 2}>(lazy_norm<ike::batch_norm3d>);
}
TEST_CASE("lazy_instancenorm1d_pickle") {
  check_pickle<shape{4, 3, 5}>(lazy_norm<ike::instance_norm1d>);
}
TEST_CASE("lazy_instancenorm2d_pickle") {
  check_pickle<shape{4, 3, 2, 3}>(lazy_norm<ike::instance_norm2d>);
}
TEST_CASE("lazy_instancenorm3d_pickle") {
  check_pickle<shape{4, 3, 2, 2, 2}>(lazy_norm<ike::instance_norm3d>);
}
