// A lazy module must have become().
// expect: scale: scale is lazy: it needs template <ike::shape In> constexpr auto become\(\) const
#include <array>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <string_view>

namespace ike = ikebana;
using namespace ike::literals;

struct scale {
  static constexpr std::string_view kind = "scale";
#ifdef MENDED
  static constexpr bool is_lazy = false;
#else
  static constexpr bool is_lazy = true;
#endif
  constexpr ike::inferred infer(const ike::shape& in) const { return in; }
  template <class T>
  void forward(const ike::context<T>&) const {}
  template <class T>
  void backward(const ike::context<T>&) const {}
};

auto model =
    ike::initialize<float, ike::shape{32, 20}>(ike::sequential("scale"_m = scale{}), ike::seed{1});
