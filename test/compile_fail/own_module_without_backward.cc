// A module without backward is refused before its backward is called.
// expect: scale: scale needs template <class T> void backward\(const ike::context<T>&\) const
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
#ifdef MENDED
  template <class T>
  void backward(const ike::context<T>&) const {}
#endif
};

auto model =
    ike::initialize<float, ike::shape{32, 20}>(ike::sequential("scale"_m = scale{}), ike::seed{1});
