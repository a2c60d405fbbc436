// expect: parametrized expects a parametrization with the const members
// errors-clang: 2
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/parametrized.hpp>

namespace ike = ikebana;

struct doubled {
  template <class T>
  void forward(const ike::shape& s, const T* original, T* weight) const {
    for (ike::dim_t i = 0; i < s.numel(); ++i) weight[i] = 2 * original[i];
  }
#ifdef MENDED
  template <class T>
  void backward(const ike::shape& s, const T*, const T*, const T* dweight, T* doriginal) const {
    for (ike::dim_t i = 0; i < s.numel(); ++i) doriginal[i] = 2 * dweight[i];
  }
#endif
};

inline constexpr ike::parametrized<ike::linear<3, 4>, doubled> net;
