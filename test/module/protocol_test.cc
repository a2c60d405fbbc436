#include "ikebana/module/protocol.hpp"

#include <doctest/doctest.h>

#include <array>
#include <string_view>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/parallel.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/identity.hpp"
#include "ikebana/nn/linear.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace somebody {

struct whole {
  static constexpr std::string_view kind = "mine";
  constexpr ike::inferred infer(const shape& in) const { return in; }
  template <class T>
  void forward(const ike::context<T>&) const {}
  template <class T>
  void backward(const ike::context<T>&) const {}
};

struct without_kind {
  constexpr ike::inferred infer(const shape& in) const { return in; }
};
struct without_infer {
  static constexpr std::string_view kind = "mine";
  template <class T>
  void forward(const ike::context<T>&) const {}
  template <class T>
  void backward(const ike::context<T>&) const {}
};
struct infer_of_text : whole {
  constexpr const char* infer(const shape&) const { return ""; }
};
struct infer_at_run_time : whole {
  ike::inferred infer(const shape& in) const { return in; }
};
/// infer is not a constant expression for an input with one dimension.
struct infer_of_images : whole {
  constexpr ike::inferred infer(const shape& in) const { return in.with(in.rank() - 3, in[2]); }
};
/// infer is a constant expression for inputs of three dimensions alone.
struct infer_of_sequences : whole {
  constexpr ike::inferred infer(const shape& in) const {
    if (in.rank() != 3) throw ike::shape_error("not a sequence");
    return in;
  }
};
static_assert(ike::detail::infers_in_compiler<infer_of_sequences, 1>);
struct forward_of_no_constant : whole {
  template <class T>
  void forward(ike::context<T>&) const {}
};
struct without_backward {
  static constexpr std::string_view kind = "mine";
  constexpr ike::inferred infer(const shape& in) const { return in; }
  template <class T>
  void forward(const ike::context<T>&) const {}
};
struct of_double {
  static constexpr std::string_view kind = "mine";
  constexpr ike::inferred infer(const shape& in) const { return in; }
  void forward(const ike::context<double>&) const {}
  void backward(const ike::context<double>&) const {}
};
struct lazy_without_become : whole {
  static constexpr bool is_lazy = true;
};
struct become_of_nothing : lazy_without_become {
  constexpr auto become() const { return whole{}; }
};
struct parameters_at_run_time : whole {
  std::array<ike::parameter_spec, 1> parameters() const { return {{{"a", shape{1}}}}; }
};
struct parameters_in_a_vector : whole {
  std::vector<ike::parameter_spec> parameters() const { return {}; }
};
struct parameters_of_no_constant : whole {
  constexpr std::array<ike::parameter_spec, 1> parameters() { return {{{"a", shape{1}}}}; }
};
struct buffers_of_parameters : whole {
  constexpr std::array<ike::parameter_spec, 1> buffers() const { return {{{"a", shape{1}}}}; }
};
struct saved_of_one_shape : whole {
  constexpr std::array<ike::saved_spec, 1> saved(const shape&) const { return {}; }
};
struct bind_of_one_shape : whole {
  constexpr void bind(const shape&) {}
};
struct check_without_mode : whole {
  ike::diagnostic check(const ike::shape_list&) const { return {}; }
};
struct describe_of_no_constant : whole {
  void describe(ike::description&) {}
};

template <class M>
constexpr ike::sentence refusal = [] {
  const auto r = ike::infer(ike::sequential("a"_m = ike::identity{}, "b"_m = M{}),
                            ike::shape_list{shape{4, 3, 8, 8}});
  return r.error.message();
}();

template <class M>
std::string_view refused() {
  constexpr auto sentence = refusal<M>;
  static constexpr auto kept = sentence;
  return kept.view();
}

}  // namespace somebody

TEST_CASE("what a module lacks of the protocol is said, with its path") {
  using namespace somebody;
  CHECK(refused<whole>() == "");
  CHECK(refused<of_double>() == "");
  CHECK(refused<infer_of_images>() == "");
  CHECK(refused<without_kind>() ==
        "b: this is not a module: it needs static constexpr std::string_view kind");
  const std::string_view infer =
      "b: mine needs constexpr ike::inferred infer(const ike::shape&) const, with a shape for each "
      "input";
  CHECK(refused<without_infer>() == infer);
  CHECK(refused<infer_of_text>() == infer);
  CHECK(
      refused<infer_at_run_time>() ==
      "b: mine needs a constexpr infer() and a constexpr constructor that use constant expressions "
      "alone");
  CHECK(refused<forward_of_no_constant>() ==
        "b: mine needs template <class T> void forward(const ike::context<T>&) const");
  CHECK(refused<without_backward>() ==
        "b: mine needs template <class T> void backward(const ike::context<T>&) const");
  const std::string_view become =
      "b: mine is lazy: it needs template <ike::shape In> constexpr auto become() const, with a "
      "shape for each input";
  CHECK(refused<lazy_without_become>() == become);
  CHECK(refused<become_of_nothing>() == become);
  CHECK(refused<parameters_at_run_time>() ==
        "b: mine needs a constexpr parameters() that uses constant expressions alone");
  const std::string_view parameters =
      "b: mine needs parameters() as constexpr std::array<ike::parameter_spec, N> parameters() "
      "const";
  CHECK(refused<parameters_in_a_vector>() == parameters);
  CHECK(refused<parameters_of_no_constant>() == parameters);
  CHECK(refused<buffers_of_parameters>() ==
        "b: mine needs buffers() as constexpr std::array<ike::buffer_spec, N> buffers() const");
  CHECK(refused<saved_of_one_shape>() ==
        "b: mine needs saved() as constexpr std::array<ike::saved_spec, N> saved(const "
        "ike::shape_list&) const");
  CHECK(refused<bind_of_one_shape>() ==
        "b: mine needs bind() as constexpr void bind(const ike::shape_list&)");
  CHECK(refused<check_without_mode>() ==
        "b: mine needs check() as ike::diagnostic check(const ike::shape_list&, bool training) "
        "const");
  CHECK(refused<describe_of_no_constant>() ==
        "b: mine needs describe() as void describe(ike::description&) const");
}

TEST_CASE("a module alone is held to the protocol too") {
  constexpr auto r = ike::infer(somebody::without_backward{}, ike::shape_list{shape{4}});
  CHECK(std::string_view{r.error.message().c_str()} ==
        "mine needs template <class T> void backward(const ike::context<T>&) const");
}

namespace {

template <class M>
std::string_view refused_of(const M&) {
  static constexpr auto kept = ike::infer(M{}, ike::shape_list{shape{3, 4}}).error.message();
  return kept.view();
}

}  // namespace

TEST_CASE("two children of one name are refused by every composition") {
  constexpr auto fc = ike::lazy_linear<4>{};
  CHECK(refused_of(ike::sequential("fc"_m = fc, ike::relu{}, "fc"_m = fc)) ==
        "fc: two children have this name, 0 and 2");
  CHECK(refused_of(ike::sequential("a"_m = ike::sequential("fc"_m = fc, "fc"_m = fc))) ==
        "a.fc: two children have this name, 0 and 1");
  CHECK(refused_of(ike::parallel("fc"_m = fc, "fc"_m = fc)) ==
        "fc: two children have this name, 0 and 1");
  CHECK(refused_of(ike::residual("fc"_m = fc, "fc"_m = fc)) ==
        "fc: two children have this name, 0 and 1");
  CHECK(refused_of(ike::choose("fc"_m = fc, "fc"_m = fc)) ==
        "fc: two children have this name, 0 and 1");
  CHECK(refused_of(ike::graph([](auto x) {
          return "fc"_m(ike::lazy_linear<4>{}, "fc"_m(ike::lazy_linear<5>{}, x));
        })) == "fc: two children have this name, 0 and 1");
}

TEST_CASE("the name of a composition's own child, and an index, are names too") {
  constexpr auto fc = ike::lazy_linear<4>{};
  CHECK(refused_of(ike::residual("add"_m = fc)) ==
        "add: child 0 has this name, which is that of the sum of a residual, child 1");
  CHECK(refused_of(ike::choose("choice"_m = fc, fc)) ==
        "choice: child 0 has this name, which is that of where the alternatives of choose come "
        "together, child 2");
  CHECK(refused_of(ike::sequential("1"_m = fc, fc)) == "1: two children have this name, 0 and 1");
  CHECK(refused_of(ike::sequential(fc, "0"_m = fc)) == "0: two children have this name, 0 and 1");
  CHECK(refused_of(ike::sequential("0"_m = fc, "12"_m = fc)) == "");
}
