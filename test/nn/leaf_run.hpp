#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"

/// A single leaf with all the memory it needs, apart from any model. The leaf's own type is known
/// to leaf_run alone, so that what the tests do with it is compiled once.
template <class T>
class any_leaf_run {
 public:
  using shape = ikebana::shape;
  using dim_t = ikebana::dim_t;

  shape in, out;
  ikebana::aligned_buffer<T> input, output, input_gradient, output_gradient, parameters, gradients;
  ikebana::aligned_buffer<std::byte> buffers;
  ikebana::random_stream stream{ikebana::seed{5}, ikebana::hash_path("leaf"), 3};
  bool training = true;
  std::vector<ikebana::parameter_spec> parameter_specs;
  std::vector<ikebana::buffer_spec> buffer_specs;

  virtual ~any_leaf_run() = default;

  void forward(bool in_training = true) {
    training = in_training;
    run_forward(make_context(false, true));
  }

  /// What the module does not keep is not there.
  void backward(bool accumulate, bool input_too = true) {
    ikebana::context<T> c = make_context(accumulate, input_too);
    if ((static_cast<int>(keeps_) & 1) == 0) values_[0] = nullptr;
    if ((static_cast<int>(keeps_) & 2) == 0) values_[1] = nullptr;
    run_backward(c);
  }

  T* parameter(std::size_t i) { return parameters.data() + offsets_[i]; }
  T* gradient(std::size_t i) { return gradients.data() + offsets_[i]; }
  std::byte* buffer(std::size_t i) { return buffers.data() + buffer_offsets_[i]; }

 protected:
  void allocate(const shape& in_shape, const ikebana::inferred& made, ikebana::kept keeps) {
    if (!made.ok()) throw ikebana::shape_error(made.error);
    in = in_shape;
    out = made.output();
    keeps_ = keeps;
    shapes_ = {in, out};
    for (auto* x : {&input, &input_gradient}) *x = ikebana::aligned_buffer<T>(in.numel());
    for (auto* x : {&output, &output_gradient}) *x = ikebana::aligned_buffer<T>(out.numel());
    dim_t total = 0;
    for (const ikebana::parameter_spec& p : parameter_specs) {
      offsets_.push_back(total);
      total += ikebana::round_up_to_alignment<T>(p.extents.numel());
    }
    parameters = ikebana::aligned_buffer<T>(total);
    gradients = ikebana::aligned_buffer<T>(total);
    dim_t bytes = 0;
    for (const ikebana::buffer_spec& b : buffer_specs) {
      buffer_offsets_.push_back(bytes);
      bytes += ikebana::round_up_to_alignment<std::byte>(b.extents.numel() * 8);
    }
    buffers = ikebana::aligned_buffer<std::byte>(bytes);
  }

  void allocate_saved(const ikebana::saved_spec& s) {
    const std::size_t element = s.element_size == 0 ? sizeof(T) : s.element_size;
    saved_.emplace_back(s.extents.numel() * static_cast<dim_t>(element));
    saved_data_.push_back(saved_.back().data());
  }

 private:
  virtual void run_forward(const ikebana::context<T>& c) = 0;
  virtual void run_backward(const ikebana::context<T>& c) = 0;

  ikebana::context<T> make_context(bool accumulate, bool input_too) {
    values_ = {input.data(), output.data()};
    value_gradients_ = {nullptr, output_gradient.data()};
    edge_gradients_ = {input_too ? input_gradient.data() : nullptr};
    ikebana::context<T> c;
    c.shapes = shapes_.data();
    c.inputs = &first_input_;
    c.arity = 1;
    c.first_output = 1;
    c.values = values_.data();
    c.value_gradients = value_gradients_.data();
    c.edge_gradients = edge_gradients_.data();
    c.parameters = parameters.data();
    c.gradients = gradients.data();
    c.parameter_offsets = offsets_.data();
    c.buffers = buffers.data();
    c.buffer_offsets = buffer_offsets_.data();
    c.saved_data = saved_data_.data();
    c.accumulating = accumulate;
    c.is_training = training;
    c.stream = stream;
    return c;
  }

  int first_input_ = 0;
  ikebana::kept keeps_ = ikebana::kept::both;
  std::array<shape, 2> shapes_;
  std::array<T*, 2> values_{}, value_gradients_{};
  std::array<T*, 1> edge_gradients_{};
  std::vector<dim_t> offsets_, buffer_offsets_;
  std::vector<ikebana::aligned_buffer<std::byte>> saved_;
  std::vector<std::byte*> saved_data_;
};

template <class T, class M>
class leaf_run final : public any_leaf_run<T> {
 public:
  /// Throws shape_error if the module refuses the shape.
  leaf_run(const M& m, const ikebana::shape& input_shape) : module_(m) {
    const ikebana::shape_list inputs{input_shape};
    if constexpr (requires { module_.bind(inputs); }) module_.bind(inputs);
    if constexpr (ikebana::detail::parameter_count<M>() > 0)
      for (const ikebana::parameter_spec& p : module_.parameters())
        this->parameter_specs.push_back(p);
    if constexpr (ikebana::detail::buffer_count<M>() > 0)
      for (const ikebana::buffer_spec& b : module_.buffers()) this->buffer_specs.push_back(b);
    this->allocate(input_shape, module_.infer(input_shape), ikebana::detail::keeps_of<M>());
    if constexpr (ikebana::detail::saved_count<M>() > 0)
      for (const ikebana::saved_spec& s : module_.saved(inputs)) this->allocate_saved(s);
  }

 private:
  void run_forward(const ikebana::context<T>& c) override { module_.forward(c); }
  void run_backward(const ikebana::context<T>& c) override { module_.backward(c); }

  M module_;
};

/// Fills an array with numbers in [-1, 1), a function of `key` alone.
template <class T>
void fill_random(T* x, ikebana::dim_t n, std::uint64_t key) {
  ikebana::fill_uniform(ikebana::random_stream{ikebana::seed{key}, 0}, T{1}, x, n);
}

/// Buffers are made anything but neutral.
inline double loss_of(any_leaf_run<double>& run, bool training) {
  for (std::size_t b = 0; b < run.buffer_specs.size(); ++b) {
    if (!run.buffer_specs[b].follows_model) continue;
    auto* x = reinterpret_cast<double*>(run.buffer(b));
    const ikebana::dim_t n = run.buffer_specs[b].extents.numel();
    fill_random(x, n, 4 + b);
    for (ikebana::dim_t i = 0; i < n; ++i) x[i] = 1.5 + x[i] / 2;
  }
  run.forward(training);
  double sum = 0;
  for (ikebana::dim_t i = 0; i < run.output.size(); ++i)
    sum += run.output[i] * run.output_gradient[i];
  return sum;
}

/// Backward against central differences of forward, in double, for every input element and every
/// parameter.
inline void check_gradients_of(any_leaf_run<double>& run, const std::string& what, bool training) {
  fill_random(run.input.data(), run.input.size(), 1);
  fill_random(run.parameters.data(), run.parameters.size(), 2);
  fill_random(run.output_gradient.data(), run.output.size(), 3);
  loss_of(run, training);
  run.backward(false);
  const auto compare_with = [&](double* x, const double* gradient, ikebana::dim_t n,
                                const std::string& name) {
    for (ikebana::dim_t i = 0; i < n; ++i) {
      constexpr double h = 1e-5;
      const double before = x[i];
      x[i] = before + h;
      const double above = loss_of(run, training);
      x[i] = before - h;
      const double below = loss_of(run, training);
      x[i] = before;
      const double expected = (above - below) / (2 * h);
      const bool near = std::abs(gradient[i] - expected) <= 1e-7 * (1 + std::abs(expected));
      CHECK_MESSAGE(near, what << " " << name << " " << i << ": " << gradient[i] << ", expected "
                               << expected);
    }
  };
  compare_with(run.input.data(), run.input_gradient.data(), run.input.size(), "input");
  for (std::size_t p = 0; p < run.parameter_specs.size(); ++p)
    compare_with(run.parameter(p), run.gradient(p), run.parameter_specs[p].extents.numel(),
                 run.parameter_specs[p].name);
}

template <class M>
void check_gradients(const M& m, const ikebana::shape& in, bool training = true) {
  leaf_run<double, M> run(m, in);
  check_gradients_of(run, std::string{M::kind}, training);
}

inline void check_empty_batch_of(any_leaf_run<float>& run, bool training) {
  REQUIRE(run.out.numel() == 0);
  fill_random(run.gradients.data(), run.gradients.size(), 1);
  run.forward(training);
  run.backward(false);
  for (std::size_t p = 0; p < run.parameter_specs.size(); ++p)
    for (ikebana::dim_t i = 0; i < run.parameter_specs[p].extents.numel(); ++i)
      CHECK_MESSAGE(run.gradient(p)[i] == 0, run.parameter_specs[p].name);
}

/// A batch of none goes through, and leaves gradients of zero.
template <class M>
void check_empty_batch(const M& m, const ikebana::shape& in, bool training = true) {
  leaf_run<float, M> run(m, in);
  check_empty_batch_of(run, training);
}

template <class M>
std::string described(const M& m) {
  ikebana::description d;
  m.describe(d);
  return d.text();
}

inline std::string sentence_of(const ikebana::inferred& made) {
  return made.error.message().c_str();
}
