#include "ikebana/compose/residual.hpp"

#include <doctest/doctest.h>

#include <string>

#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/conv.hpp"
#include "recorded.hpp"

using namespace ikebana;

namespace {

template <class T, shape In, class M>
void compare_residual(const std::string& name, const M& m) {
  const state_dict& dict = recorded<T>("modules");
  const auto at = [&](const char* tensor) -> const state_dict::entry& {
    return dict.at(name + "/" + tensor);
  };
  auto net = initialize<T, In>(m, seed{1});
  const auto& parameters = net.current_program().parameters;
  for (std::size_t p = 0; p < parameters.size(); ++p)
    copy_bytes(net.parameters().data() + net.layout().offsets[p], at(parameters[p].spec.name));
  const auto y = net(at("x").template view<T, In>());
  check_close<T>(y.data(), at("y"), name + " y");
  tensor<T, In> gx;
  net.zero_grad();
  net.backward(at("gy").template view<T, In>(), gx);
  check_close<T>(gx.data(), at("gx"), name + " gx");
  for (std::size_t p = 0; p < parameters.size(); ++p)
    check_close<T>(net.gradients().data() + net.layout().offsets[p],
                   at((std::string{"grad."} + parameters[p].spec.name).c_str()), name + " grad");
}

}  // namespace

TEST_CASE("a residual of a convolution computes what PyTorch recorded") {
  constexpr auto padded = residual(lazy_conv2d<3, kernel<3>, padding<1>>{});
  compare_residual<float, shape{2, 3, 6, 5}>("residual_conv", padded);
  compare_residual<double, shape{2, 3, 6, 5}>("residual_conv", padded);
  constexpr auto single = residual(lazy_conv2d<4, kernel<1>, bias<false>>{});
  compare_residual<float, shape{2, 4, 3, 5}>("residual_conv_1x1_no_bias", single);
  compare_residual<double, shape{2, 4, 3, 5}>("residual_conv_1x1_no_bias", single);
}
