#pragma once

#include <boost/hana/pair.hpp>
#include <boost/hana/string.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <utility>

#include "ikebana/model/model.hpp"

namespace ikebana {

namespace detail {

template <class Model, std::size_t I>
constexpr path_text parameter_path() {
  constexpr const auto& p = Model::lowered();
  return p.path(p.parameters[I]);
}

template <class Model, std::size_t I, std::size_t... C>
constexpr auto parameter_name(std::index_sequence<C...>) {
  constexpr path_text path = parameter_path<Model, I>();
  return boost::hana::string<path.data[C]...>{};
}

template <class Model, std::size_t I>
auto named_parameter(Model& m) {
  using model_type = std::remove_const_t<Model>;
  constexpr std::size_t length = parameter_path<model_type, I>().size();
  constexpr auto name = parameter_name<model_type, I>(std::make_index_sequence<length>{});
  return boost::hana::make_pair(name, m[name]);
}

}  // namespace detail

/// The parameters of a model with their paths, in PyTorch's order, for Boost.Hana's algorithms: a
/// hana::tuple of hana::pair<hana::string, tensor_view>. `hana::for_each(named_parameters(model),
/// [](auto p) {...})`.
template <class Model>
auto named_parameters(Model& m) {
  using model_type = std::remove_const_t<Model>;
  static_assert(
      !any_module<model_type>,
      "ikebana: named_parameters needs an initialized model: initialize<T, shape>(module, "
      "seed) gives one");
  if constexpr (!any_module<model_type>) return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return boost::hana::make_tuple(detail::named_parameter<Model, I>(m)...);
    }
  (std::make_index_sequence<model_type::parameter_count>{});
}

}  // namespace ikebana
