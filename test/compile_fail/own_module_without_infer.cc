// A module without infer is refused before anything else is instantiated for it.
// expect: scale: scale needs constexpr ike::inferred infer\(const ike::shape&\) const
#include <array>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <string_view>

namespace ike = ikebana;
using namespace ike::literals;

struct scale {
  static constexpr std::string_view kind = "scale";
#ifdef MENDED
  constexpr ike::inferred infer(const ike::shape& in) const { return in; }
#endif
  template <class T>
  void forward(const ike::context<T>&) const {}
  template <class T>
  void backward(const ike::context<T>&) const {}
};

auto model =
    ike::initialize<float, ike::shape{32, 20}>(ike::sequential("scale"_m = scale{}), ike::seed{1});
