#include "ikebana/core/strided_view.hpp"

#include <doctest/doctest.h>

#include <type_traits>
#include <vector>

#include "ikebana/core/rearrange.hpp"

namespace ike = ikebana;
using ike::dim_t;
using ike::dynamic;
using ike::shape;

namespace {

template <class View>
auto values(const View& v) {
  std::vector<typename View::value_type> all;
  v.for_each([&](auto x) { all.push_back(x); });
  return all;
}

/// What Eigen's column-major matrices of three rows have.
struct eigen_matrix {
  static constexpr int RowsAtCompileTime = 3, ColsAtCompileTime = -1;
  std::vector<float> elements;
  float* data() { return elements.data(); }
  const float* data() const { return elements.data(); }
  long rows() const { return 3; }
  long cols() const { return static_cast<long>(elements.size()) / 3; }
  long rowStride() const { return 1; }
  long colStride() const { return 3; }
};

/// What a std::mdspan<int, std::extents<int, dynamic, 4>, std::layout_right> has.
struct span_of_fours {
  int* elements;
  int rows;
  int* data_handle() const { return elements; }
  static constexpr std::size_t rank() { return 2; }
  static constexpr std::size_t static_extent(std::size_t d) {
    return d == 0 ? static_cast<std::size_t>(-1) : 4;
  }
  int extent(std::size_t d) const { return d == 0 ? rows : 4; }
  int stride(std::size_t d) const { return d == 0 ? 4 : 1; }
};

/// 0, 1, 2, ..
template <shape S, class... D>
auto counted(D... extents) {
  auto x = ike::zeros<double, S>(extents...);
  for (dim_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  return x;
}

}  // namespace

TEST_CASE("transposed and permuted views read what transpose and permute copy") {
  const auto m = counted<shape{3, 5}>();
  const auto t = ike::transposed(m);
  static_assert(decltype(t)::view_shape == shape{5, 3});
  static_assert(std::is_same_v<decltype(t.data()), const double*>);
  CHECK(t(4, 1) == m(1, 4));
  CHECK_FALSE(t.is_contiguous());
  CHECK(ike::transposed(t).is_contiguous());
  const auto copy = ike::transpose(m);
  CHECK(values(t) == std::vector<double>(copy.begin(), copy.end()));

  const auto x = counted<shape{dynamic, 3, 4, 5}>(2);
  const auto p = ike::permuted<0, 3, 1, 2>(x);
  const auto q = ike::permute<0, 3, 1, 2>(x);
  CHECK(p.extents() == q.extents());
  CHECK(values(p) == std::vector<double>(q.begin(), q.end()));
  const ike::tensor<double, shape{dynamic, 5, 3, 4}> owned = ike::contiguous(p);
  CHECK(values(ike::strided(owned)) == values(p));
}

TEST_CASE("slices with steps, columns, and slices of slices") {
  auto m = counted<shape{4, 7}>();
  CHECK(values(ike::sliced<1>(m, 1, 7, 3)) == std::vector<double>{1, 4, 8, 11, 15, 18, 22, 25});
  CHECK(values(ike::selected<1>(m, 2)) == std::vector<double>{2, 9, 16, 23});
  const auto rows = ike::sliced<0>(m, 0, 4, 2);
  CHECK(values(ike::sliced<1>(rows, 5, 7)) == std::vector<double>{5, 6, 19, 20});
  CHECK(values(ike::selected<0>(ike::transposed(m), 6)) == std::vector<double>{6, 13, 20, 27});
  static_assert(decltype(ike::selected<0>(ike::selected<0>(m, 1), 3))::rank() == 0);
  CHECK(ike::selected<0>(ike::selected<0>(m, 1), 3)() == 10);
  CHECK(ike::sliced<0>(m, 1, 3).is_contiguous());
  CHECK_FALSE(ike::sliced<1>(m, 0, 6).is_contiguous());

  CHECK(ike::sliced<1>(m, 7, 7).size() == 0);
  CHECK(values(ike::sliced<1>(m, 3, 3, 2)).empty());
  CHECK(ike::contiguous(ike::sliced<0>(m, 4, 4)).extents() == shape{0, 7});
  const auto none = ike::zeros<float, shape{0, 3}>();
  CHECK(values(ike::transposed(none)).empty());
  CHECK(ike::transposed(none).is_contiguous());

  CHECK_THROWS_WITH_AS(ike::sliced<1>(m, 2, 8),
                       "a slice ends within the 7 elements of its dimension, got 8 (of [4, 7])",
                       ike::shape_error);
  CHECK_THROWS_AS(ike::sliced<1>(m, 5, 4), ike::shape_error);
  CHECK_THROWS_WITH_AS(ike::sliced<0>(m, -1, 4),
                       "a slice ends within the 4 elements of its dimension, got -1 (of [4, 7])",
                       ike::shape_error);
  CHECK_THROWS_AS(ike::sliced<0>(m, 0, 4, 0), ike::error);
  CHECK_THROWS_WITH_AS(ike::selected<1>(m, 7), "index 7 is not in [0, 7) (of [4, 7])",
                       ike::shape_error);
  CHECK_THROWS_AS(ike::selected<0>(m, -1), ike::shape_error);
}

TEST_CASE("elements are written through views") {
  auto m = ike::zeros<float, shape{2, 3}>();
  const auto rows = ike::tensor_of<float, shape{3, 2}>({1, 2, 3, 4, 5, 6});
  ike::transposed(m) = rows;
  CHECK(values(ike::strided(m)) == std::vector<float>{1, 3, 5, 2, 4, 6});
  ike::selected<1>(m, 1) = ike::tensor_of<float, shape{2}>({8, 9});
  CHECK(values(ike::strided(m)) == std::vector<float>{1, 8, 5, 2, 9, 6});
  ike::selected<1>(m, 0) = ike::selected<0>(ike::sliced<1>(rows, 0, 2), 2);
  CHECK(values(ike::strided(m)) == std::vector<float>{5, 8, 5, 6, 9, 6});
  ike::sliced<1>(m, 0, 3, 2).fill(-1);
  CHECK(values(ike::strided(m)) == std::vector<float>{-1, 8, -1, -1, 9, -1});
  const auto two = ike::zeros<float, shape{dynamic}>(2);
  CHECK_THROWS_AS(ike::selected<0>(m, 0) = two, ike::shape_error);
  CHECK(m(0, 0) == -1);
}

TEST_CASE("matrices of Eigen and spans of several dimensions are strided views") {
  eigen_matrix m{{1, 2, 3, 4, 5, 6}};
  const auto v = ike::strided(m);
  static_assert(decltype(v)::view_shape == shape{3, dynamic});
  CHECK(values(v) == std::vector<float>{1, 4, 2, 5, 3, 6});
  ike::strided(m) = ike::tensor_of<float, shape{3, 2}>({1, 2, 3, 4, 5, 6});
  CHECK(m.elements == std::vector<float>{1, 3, 5, 2, 4, 6});
  const eigen_matrix& constant = m;
  static_assert(std::is_same_v<decltype(ike::strided(constant).data()), const float*>);

  std::vector<int> numbers{1, 2, 3, 4, 5, 6, 7, 8};
  const auto s = ike::strided(span_of_fours{numbers.data(), 2});
  static_assert(decltype(s)::view_shape == shape{dynamic, 4});
  CHECK(s.is_contiguous());
  CHECK(values(ike::selected<1>(s, 2)) == std::vector<int>{3, 7});
}
