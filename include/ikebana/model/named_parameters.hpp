#pragma once

#include <array>
#include <boost/hana/pair.hpp>
#include <boost/hana/string.hpp>
#include <boost/hana/tuple.hpp>
#include <boost/hana/unpack.hpp>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/core/dynamic_view.hpp"
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
auto hana_parameter(Model& m) {
  using model_type = std::remove_const_t<Model>;
  constexpr std::size_t length = parameter_path<model_type, I>().size();
  constexpr auto name = parameter_name<model_type, I>(std::make_index_sequence<length>{});
  return boost::hana::make_pair(name, m[name]);
}

}  // namespace detail

/// A parameter's path and its elements, for loops at run time.
template <class T>
struct named_parameter {
  std::string_view name;
  dynamic_view<T> value;
};

namespace detail {
struct named_parameters_tag {};
}  // namespace detail

/// What named_parameters returns: a range of N named_parameter, and a Foldable of Boost.Hana.
template <class T, class... Pairs>
class named_parameter_list {
 public:
  using hana_tag = detail::named_parameters_tag;
  static constexpr std::size_t count = sizeof...(Pairs);

  explicit named_parameter_list(const Pairs&... p)
      : tuple{p...},
        list_{named_parameter<T>{
            boost::hana::first(p).c_str(),
            {boost::hana::second(p).data(), boost::hana::second(p).extents()}}...} {}

  const named_parameter<T>* begin() const { return list_.data(); }
  const named_parameter<T>* end() const { return list_.data() + count; }
  static constexpr std::size_t size() { return count; }

  /// The pairs of a hana::string and a tensor_view.
  boost::hana::tuple<Pairs...> tuple;

 private:
  std::array<named_parameter<T>, count> list_;
};

/// The parameters of a model with their paths, in PyTorch's order. At run time it is a range:
/// `for (auto [name, value] : named_parameters(model))`, where name is a std::string_view and value
/// a dynamic_view. For Boost.Hana it is a Foldable of hana::pair<hana::string, tensor_view>:
/// `hana::for_each(named_parameters(model), [](auto p) {...})`; for what needs a sequence,
/// `.tuple` is a hana::tuple. The views show the model's memory; writes after a later call of the
/// model need model.parameters_changed(). O(number of parameters); does not allocate.
template <class Model>
auto named_parameters(Model& m) {
  using model_type = std::remove_const_t<Model>;
  static_assert(
      !any_module<model_type>,
      "ikebana: named_parameters needs an initialized model: initialize<T, shape>(module, "
      "seed) gives one");
  if constexpr (!any_module<model_type>) return [&]<std::size_t... I>(std::index_sequence<I...>) {
      using element = std::remove_pointer_t<decltype(m.parameters().data())>;
      return named_parameter_list<element, decltype(detail::hana_parameter<Model, I>(m))...>(
          detail::hana_parameter<Model, I>(m)...);
    }
  (std::make_index_sequence<model_type::parameter_count>{});
}

/// The number of trainable numbers of a model, `sum(p.numel() for p in model.parameters())` in
/// PyTorch; shared parameters count once, and what the layout adds for alignment does not. O(number
/// of parameters); does not allocate.
template <class Model>
dim_t parameter_count(const Model& m) {
  static_assert(!any_module<Model>,
                "ikebana: parameter_count needs an initialized model: initialize<T, shape>(module, "
                "seed) gives one");
  dim_t n = 0;
  if constexpr (!any_module<Model>)
    for (const auto& p : m.current_program().all_parameters()) n += p.spec.extents.numel();
  return n;
}

}  // namespace ikebana

/// Makes a list of named parameters a Foldable.
template <>
struct boost::hana::unpack_impl<ikebana::detail::named_parameters_tag> {
  template <class List, class F>
  static constexpr decltype(auto) apply(List&& list, F&& f) {
    return boost::hana::unpack(static_cast<List&&>(list).tuple, static_cast<F&&>(f));
  }
};
