// The layout of parameters is computed at compile time.
// expect: scale: scale needs a constexpr parameters\(\) that uses constant expressions alone
#include <array>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <string_view>

namespace ike = ikebana;
using namespace ike::literals;

struct scale {
  static constexpr std::string_view kind = "scale";
  constexpr ike::inferred infer(const ike::shape& in) const { return in; }
  template <class T>
  void forward(const ike::context<T>&) const {}
  template <class T>
  void backward(const ike::context<T>&) const {}
#ifdef MENDED
  constexpr
#endif
      std::array<ike::parameter_spec, 1>
      parameters() const {
    return {ike::parameter_spec{"weight", ike::shape{1}}};
  }
};

auto model =
    ike::initialize<float, ike::shape{32, 20}>(ike::sequential("scale"_m = scale{}), ike::seed{1});
