#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"

/// A single leaf with all the memory it needs, outside of any model. Only leaf_run knows the leaf's
/// own type, so that the tests' code is compiled once.
template <class T>
class any_leaf_run {
 public:
  using shape = ikebana::shape;
  using dim_t = ikebana::dim_t;
  using element_kind = ikebana::element_kind;
  template <class X>
  using each = std::array<X, ikebana::max_arity>;

  ikebana::shape_list ins, outs;
  each<element_kind> kinds{};
  each<ikebana::aligned_buffer<T>> inputs, outputs, input_gradients, output_gradients;
  each<ikebana::aligned_buffer<std::int64_t>> indices;  ///< Inputs of that kind.
  each<ikebana::aligned_buffer<bool>> booleans;         ///< Likewise.
  ikebana::aligned_buffer<T> parameters, gradients;
  ikebana::aligned_buffer<std::byte> buffers;
  ikebana::random_stream stream{ikebana::seed{5}, ikebana::hash_path("leaf"), 3};
  bool training = true;
  std::vector<ikebana::parameter_spec> parameter_specs;
  std::vector<ikebana::buffer_spec> buffer_specs;

  // Of the first input and output.
  shape in, out;
  ikebana::aligned_buffer<T>&input = inputs[0], &output = outputs[0];
  ikebana::aligned_buffer<T>&input_gradient = input_gradients[0],
  &output_gradient = output_gradients[0];

  any_leaf_run() = default;
  any_leaf_run(const any_leaf_run&) = delete;
  virtual ~any_leaf_run() = default;

  void forward(bool in_training = true);

  /// What the module does not keep is not available.
  void backward(bool accumulate, bool inputs_too = true);

  /// Initial values, as a model of seed s initialises a leaf at the root.
  void initialize(ikebana::seed s);

  T* parameter(std::size_t i) { return parameters.data() + offsets_[i]; }
  T* gradient(std::size_t i) { return gradients.data() + offsets_[i]; }
  std::byte* buffer(std::size_t i) { return buffers.data() + buffer_offsets_[i]; }

 protected:
  void allocate(const ikebana::shape_list& in_shapes, const ikebana::inferred& made,
                ikebana::kept keeps);

  void allocate_saved(const ikebana::saved_spec& s);

 private:
  virtual void run_forward(const ikebana::context<T>& c) = 0;
  virtual void run_backward(const ikebana::context<T>& c) = 0;
  virtual void run_finish_initialization(T* const* parameter_pointers,
                                         std::byte* const* buffer_pointers) = 0;

  ikebana::context<T> make_context(bool accumulate, bool inputs_too);

  ikebana::kept keeps_ = ikebana::kept::both;
  each<int> numbers_{};
  std::array<shape, 2 * ikebana::max_arity> shapes_{};
  std::array<T*, 2 * ikebana::max_arity> values_{}, value_gradients_{};
  each<T*> edge_gradients_{};
  std::vector<dim_t> offsets_, buffer_offsets_;
  std::vector<T*> parameter_pointers_, gradient_pointers_;
  std::vector<std::byte*> buffer_pointers_;
  std::vector<ikebana::aligned_buffer<std::byte>> saved_;
  std::vector<std::byte*> saved_data_;
};

extern template class any_leaf_run<float>;
extern template class any_leaf_run<double>;

template <class T, class M>
class leaf_run final : public any_leaf_run<T> {
 public:
  /// Throws shape_error if the module refuses the shapes.
  leaf_run(const M& m, const ikebana::shape_list& in_shapes) : module_(m) {
    if constexpr (requires { module_.bind(in_shapes); }) module_.bind(in_shapes);
    if constexpr (ikebana::detail::parameter_count<M>() > 0)
      for (const ikebana::parameter_spec& p : module_.parameters())
        this->parameter_specs.push_back(p);
    if constexpr (ikebana::detail::buffer_count<M>() > 0)
      for (const ikebana::buffer_spec& b : module_.buffers()) this->buffer_specs.push_back(b);
    for (std::size_t i = 0; i < in_shapes.size(); ++i)
      this->kinds[i] = ikebana::detail::input_kind_of<M>(i, in_shapes.size());
    this->allocate(in_shapes, ikebana::detail::infer_leaf(module_, in_shapes),
                   ikebana::detail::keeps_of(module_));
    if constexpr (ikebana::detail::saved_count<M>() > 0)
      for (const ikebana::saved_spec& s : module_.saved(in_shapes)) this->allocate_saved(s);
  }
  leaf_run(const M& m, const ikebana::shape& in_shape)
      : leaf_run(m, ikebana::shape_list{in_shape}) {}

 private:
  void run_forward(const ikebana::context<T>& c) override {
    if constexpr (requires { module_.validate(c); }) module_.validate(c);
    module_.forward(c);
  }
  void run_backward(const ikebana::context<T>& c) override { module_.backward(c); }
  void run_finish_initialization([[maybe_unused]] T* const* parameter_pointers,
                                 [[maybe_unused]] std::byte* const* buffer_pointers) override {
    if constexpr (requires {
                    module_.template finish_initialization<T>(parameter_pointers, buffer_pointers);
                  })
      module_.template finish_initialization<T>(parameter_pointers, buffer_pointers);
  }

  M module_;
};

/// Creates the run of a leaf for inputs of these shapes.
template <class T>
using make_leaf_run =
    std::function<std::unique_ptr<any_leaf_run<T>>(const ikebana::shape_list& in)>;

template <class T, class M>
make_leaf_run<T> leaf_run_maker(const M& m) {
  return [m](const ikebana::shape_list& in) { return std::make_unique<leaf_run<T, M>>(m, in); };
}

/// Fills an array with numbers in [-1, 1) that depend only on `key`.
template <class T>
void fill_random(T* x, ikebana::dim_t n, std::uint64_t key) {
  ikebana::fill_uniform(ikebana::random_stream{ikebana::seed{key}, 0}, T{1}, x, n);
}

/// Buffers get non-neutral values.
double loss_of(any_leaf_run<double>& run, bool training);

/// Compares backward with central differences of forward, in double, for every input element and
/// every parameter.
void check_gradients_of(any_leaf_run<double>& run, const std::string& what, bool training);

/// `set` writes the indices and masks among the inputs.
template <class M, class Set>
void check_gradients(const M& m, const ikebana::shape_list& ins, bool training, const Set& set) {
  leaf_run<double, M> run(m, ins);
  set(static_cast<any_leaf_run<double>&>(run));
  check_gradients_of(run, std::string{M::kind}, training);
}

template <class M>
void check_gradients(const M& m, const ikebana::shape_list& ins, bool training = true) {
  check_gradients(m, ins, training, [](any_leaf_run<double>&) {});
}
template <class M>
void check_gradients(const M& m, const ikebana::shape& in, bool training = true) {
  check_gradients(m, ikebana::shape_list{in}, training);
}

void check_empty_batch_of(any_leaf_run<float>& run, bool training);

/// An empty batch is accepted, and leaves zero gradients.
template <class M>
void check_empty_batch(const M& m, const ikebana::shape_list& ins, bool training = true) {
  leaf_run<float, M> run(m, ins);
  check_empty_batch_of(run, training);
}
template <class M>
void check_empty_batch(const M& m, const ikebana::shape& in, bool training = true) {
  check_empty_batch(m, ikebana::shape_list{in}, training);
}

template <class M>
std::string described(const M& m) {
  ikebana::description d;
  m.describe(d);
  return d.text();
}

std::string sentence_of(const ikebana::inferred& made);
