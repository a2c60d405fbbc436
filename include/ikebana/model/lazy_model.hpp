#pragma once

#include <memory>
#include <utility>

#include "ikebana/core/error.hpp"
#include "ikebana/model/initialize.hpp"

namespace ikebana {

namespace detail {

/// The declared shape of a model that first saw S: the batch may change later, so its extent is
/// dynamic.
constexpr shape with_dynamic_batch(shape s) {
  if (s.rank() > 1) s[0] = dynamic;
  return s;
}

/// The model that M becomes for inputs declared as In.
template <class M, class T, shape In>
struct model_for {
  using type = decltype(initialize<T, In>(std::declval<const M&>(), seed{}, In));
};

template <any_module M>
struct lazy_model_base {
  virtual ~lazy_model_base() = default;
  /// What is wrong with an input of this shape, for the model as it is resolved.
  virtual diagnostic check(const shape& input) const = 0;
  const void* type = nullptr;
};

template <class Model>
inline constexpr char model_tag = 0;

template <any_module M, class Model, shape In>
struct lazy_model_holder final : lazy_model_base<M> {
  Model model;
  lazy_model_holder(const M& m, seed s, const shape& input)
      : model{initialize<typename Model::value_type, In>(m, s, input)} {
    this->type = &model_tag<Model>;
  }
  diagnostic check(const shape& input) const override {
    return check_inputs(model.module(), shape_list{In}, shape_list{input});
  }
};

}  // namespace detail

/// A network that is there before its data: parameters come into being at the first call, for that
/// input's element type and shape (the batch may change afterwards). `lazy_model holder{lazy_mlp,
/// seed{42}}; auto y = holder(x);` Every later input is checked against the first one's dimensions.
template <any_module M>
class lazy_model {
  template <tensor_like X>
  static constexpr shape declared = detail::with_dynamic_batch(X::static_shape);

 public:
  lazy_model(M m, seed s) : module_{std::move(m)}, seed_{s} {}

  /// Whether the first call is still to come.
  bool has_uninitialized_params() const { return held_ == nullptr; }

  /// The output for x, as of `model::operator()`. The first call resolves the network and
  /// allocates; a shape that cannot fit is a compile error. Throws shape_error where a later input
  /// does not fit the first.
  template <tensor_like X>
  auto operator()(const X& x) & {
    constexpr inferred made = infer(M{}, shape_list{declared<X>});
    if constexpr (!made.ok()) {
      constexpr diagnostic wrong = made.error;
      static_cast<void>(sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
    } else {
      return model_of(x)(x);
    }
  }

  /// The model that inputs of the type of x are run on; resolves the network if it is not.
  template <tensor_like X>
  auto& model_of(const X& x) & {
    using model_type = typename detail::model_for<M, typename X::value_type, declared<X>>::type;
    using holder = detail::lazy_model_holder<M, model_type, declared<X>>;
    if (held_ == nullptr) {
      held_ = std::make_unique<holder>(module_, seed_, x.extents());
    } else if (held_->type != &detail::model_tag<model_type>) {
      const diagnostic wrong = held_->check(x.extents());
      if (!wrong.ok()) throw shape_error(wrong);
      throw shape_error(
          diagnostic{"the model was resolved for another element type, or with other dimensions "
                     "static; got an input {input}",
                     0, 0, x.extents()});
    }
    return static_cast<holder&>(*held_).model;
  }

 private:
  M module_;
  seed seed_;
  std::unique_ptr<detail::lazy_model_base<M>> held_;
};

}  // namespace ikebana
