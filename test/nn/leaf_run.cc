#include "leaf_run.hpp"

template <class T>
void any_leaf_run<T>::forward(bool in_training) {
  training = in_training;
  run_forward(make_context(false, true));
}

template <class T>
void any_leaf_run<T>::backward(bool accumulate, bool inputs_too) {
  const ikebana::context<T> c = make_context(accumulate, inputs_too);
  for (std::size_t i = 0; i < ins.size(); ++i)
    if (kinds[i] == element_kind::real && (static_cast<int>(keeps_) & 1) == 0) values_[i] = nullptr;
  for (std::size_t i = 0; i < outs.size(); ++i)
    if ((static_cast<int>(keeps_) & 2) == 0) values_[ins.size() + i] = nullptr;
  run_backward(c);
}

template <class T>
void any_leaf_run<T>::initialize(ikebana::seed s) {
  for (std::size_t p = 0; p < parameter_specs.size(); ++p) {
    const ikebana::parameter_spec& spec = parameter_specs[p];
    const char* name = *spec.drawn_as != '\0' ? spec.drawn_as : spec.name;
    spec.init.template fill<T>(ikebana::random_stream{s, ikebana::hash_path(name)}, parameter(p),
                               spec.extents);
  }
  for (std::size_t b = 0; b < buffer_specs.size(); ++b) {
    const ikebana::buffer_spec& spec = buffer_specs[b];
    if (spec.follows_model)
      spec.init.template fill<T>(ikebana::random_stream{s, ikebana::hash_path(spec.name)},
                                 reinterpret_cast<T*>(buffer(b)), spec.extents);
  }
  run_finish_initialization(parameter_pointers_.data(), buffer_pointers_.data());
}

template <class T>
void any_leaf_run<T>::allocate(const ikebana::shape_list& in_shapes, const ikebana::inferred& made,
                               ikebana::kept keeps) {
  if (!made.ok()) throw ikebana::shape_error(made.error);
  ins = in_shapes;
  outs = made.outputs;
  in = ins[0];
  out = outs[0];
  keeps_ = keeps;
  for (std::size_t i = 0; i < ins.size(); ++i) {
    shapes_[i] = ins[i];
    const dim_t n = ins[i].numel();
    if (kinds[i] == element_kind::index)
      indices[i] = ikebana::aligned_buffer<std::int64_t>(n);
    else if (kinds[i] == element_kind::boolean)
      booleans[i] = ikebana::aligned_buffer<bool>(n);
    else
      for (auto* x : {&inputs[i], &input_gradients[i]}) *x = ikebana::aligned_buffer<T>(n);
  }
  for (std::size_t i = 0; i < outs.size(); ++i) {
    shapes_[ins.size() + i] = outs[i];
    for (auto* x : {&outputs[i], &output_gradients[i]})
      *x = ikebana::aligned_buffer<T>(outs[i].numel());
  }
  dim_t total = 0;
  for (const ikebana::parameter_spec& p : parameter_specs) {
    offsets_.push_back(total);
    total += ikebana::round_up_to_alignment<T>(p.extents.numel());
  }
  parameters = ikebana::aligned_buffer<T>(total);
  gradients = ikebana::aligned_buffer<T>(total);
  for (std::size_t p = 0; p < parameter_specs.size(); ++p) {
    parameter_pointers_.push_back(parameter(p));
    gradient_pointers_.push_back(gradient(p));
  }
  dim_t bytes = 0;
  for (const ikebana::buffer_spec& b : buffer_specs) {
    buffer_offsets_.push_back(bytes);
    bytes += ikebana::round_up_to_alignment<std::byte>(b.extents.numel() * 8);
  }
  buffers = ikebana::aligned_buffer<std::byte>(bytes);
  for (std::size_t b = 0; b < buffer_specs.size(); ++b) buffer_pointers_.push_back(buffer(b));
}

template <class T>
void any_leaf_run<T>::allocate_saved(const ikebana::saved_spec& s) {
  const std::size_t element = s.element_size == 0 ? sizeof(T) : s.element_size;
  saved_.emplace_back(s.extents.numel() * static_cast<dim_t>(element));
  saved_data_.push_back(saved_.back().data());
}

template <class T>
ikebana::context<T> any_leaf_run<T>::make_context(bool accumulate, bool inputs_too) {
  for (std::size_t i = 0; i < ins.size(); ++i) {
    const bool real = kinds[i] == element_kind::real;
    values_[i] = real                                ? inputs[i].data()
                 : kinds[i] == element_kind::boolean ? reinterpret_cast<T*>(booleans[i].data())
                                                     : reinterpret_cast<T*>(indices[i].data());
    numbers_[i] = static_cast<int>(i);
    edge_gradients_[i] = inputs_too && real ? input_gradients[i].data() : nullptr;
  }
  for (std::size_t i = 0; i < outs.size(); ++i) {
    values_[ins.size() + i] = outputs[i].data();
    value_gradients_[ins.size() + i] = output_gradients[i].data();
  }
  ikebana::context<T> c;
  c.shapes = shapes_.data();
  c.inputs = numbers_.data();
  c.arity = ins.size();
  c.first_output = static_cast<int>(ins.size());
  c.values = values_.data();
  c.value_gradients = value_gradients_.data();
  c.edge_gradients = edge_gradients_.data();
  c.parameters = parameter_pointers_.data();
  c.gradients = gradient_pointers_.data();
  c.buffers = buffer_pointers_.data();
  c.saved_data = saved_data_.data();
  c.accumulating = accumulate;
  c.is_training = training;
  c.stream = stream;
  return c;
}

template class any_leaf_run<float>;
template class any_leaf_run<double>;

double loss_of(any_leaf_run<double>& run, bool training) {
  for (std::size_t b = 0; b < run.buffer_specs.size(); ++b) {
    if (!run.buffer_specs[b].follows_model) continue;
    auto* x = reinterpret_cast<double*>(run.buffer(b));
    const ikebana::dim_t n = run.buffer_specs[b].extents.numel();
    fill_random(x, n, 4 + b);
    for (ikebana::dim_t i = 0; i < n; ++i) x[i] = 1.5 + x[i] / 2;
  }
  run.forward(training);
  double sum = 0;
  for (std::size_t o = 0; o < run.outs.size(); ++o)
    for (ikebana::dim_t i = 0; i < run.outputs[o].size(); ++i)
      sum += run.outputs[o][i] * run.output_gradients[o][i];
  return sum;
}

void check_gradients_of(any_leaf_run<double>& run, const std::string& what, bool training) {
  for (std::size_t i = 0; i < run.ins.size(); ++i)
    fill_random(run.inputs[i].data(), run.inputs[i].size(), 1 + 10 * i);
  fill_random(run.parameters.data(), run.parameters.size(), 2);
  for (std::size_t o = 0; o < run.outs.size(); ++o)
    fill_random(run.output_gradients[o].data(), run.outputs[o].size(), 3 + 10 * o);
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
  for (std::size_t i = 0; i < run.ins.size(); ++i)
    compare_with(run.inputs[i].data(), run.input_gradients[i].data(), run.inputs[i].size(),
                 "input" + std::to_string(i));
  for (std::size_t p = 0; p < run.parameter_specs.size(); ++p)
    compare_with(run.parameter(p), run.gradient(p), run.parameter_specs[p].extents.numel(),
                 run.parameter_specs[p].name);
}

void check_empty_batch_of(any_leaf_run<float>& run, bool training) {
  REQUIRE(run.out.numel() == 0);
  fill_random(run.gradients.data(), run.gradients.size(), 1);
  run.forward(training);
  run.backward(false);
  for (std::size_t p = 0; p < run.parameter_specs.size(); ++p)
    for (ikebana::dim_t i = 0; i < run.parameter_specs[p].extents.numel(); ++i)
      CHECK_MESSAGE(run.gradient(p)[i] == 0, run.parameter_specs[p].name);
}

std::string sentence_of(const ikebana::inferred& made) { return made.error.message().c_str(); }
