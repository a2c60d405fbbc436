#include "layers.hpp"

std::set<std::string> layers_not_compared(const std::string& area, const std::string& prefix) {
  std::set<std::string> found = not_compared("layers_" + area, {prefix});
  found.erase("family");
  found.erase("recorded_with");
  return found;
}

template <class T>
void compare_layer_once(const std::string& family, const std::string& name, any_leaf_run<T>& run,
                        bool training, const std::string& where) {
  using namespace ikebana;
  const state_dict& dict = recorded<T>(family);
  const auto at = [&](const std::string& tensor) -> const state_dict::entry& {
    return dict.at(name + "/" + tensor);
  };
  const auto numbered = [](const char* what, std::size_t i) { return what + std::to_string(i); };
  for (std::size_t o = 0; o < run.outs.size(); ++o)
    REQUIRE_MESSAGE(run.outs[o] == at(numbered("y", o)).extents, name);
  for (std::size_t i = 0; i < run.ins.size(); ++i) {
    const state_dict::entry& x = at(numbered("x", i));
    if (run.kinds[i] == element_kind::index)
      copy_bytes(run.indices[i].data(), x);
    else if (run.kinds[i] == element_kind::boolean)
      for (dim_t e = 0; e < run.booleans[i].size(); ++e)
        run.booleans[i][e] = x.bytes[static_cast<std::size_t>(e)] != std::byte{0};
    else
      copy_bytes(run.inputs[i].data(), x);
  }
  for (std::size_t p = 0; p < run.parameter_specs.size(); ++p) {
    REQUIRE_MESSAGE(run.parameter_specs[p].extents == at(run.parameter_specs[p].name).extents,
                    name << " " << run.parameter_specs[p].name);
    copy_bytes(run.parameter(p), at(run.parameter_specs[p].name));
  }
  std::size_t persistent = 0;
  for (std::size_t b = 0; b < run.buffer_specs.size(); ++b) {
    if (!run.buffer_specs[b].persistent) continue;
    ++persistent;
    REQUIRE(run.buffer_specs[b].extents == at(run.buffer_specs[b].name).extents);
    copy_bytes(run.buffer(b), at(run.buffer_specs[b].name));
  }
  // None of PyTorch's parameters or buffers is left out.
  std::size_t states = 0;
  for (const state_dict::entry& e : dict)
    states += e.name.starts_with(name + "/grad.") || e.name.starts_with(name + "/after.");
  CHECK_MESSAGE(states == run.parameter_specs.size() + persistent, name);

  run.forward(training);
  for (std::size_t o = 0; o < run.outs.size(); ++o)
    check_close<T>(run.outputs[o].data(), at(numbered("y", o)), name + numbered(" y", o) + where);
  for (std::size_t b = 0; b < run.buffer_specs.size(); ++b) {
    if (!run.buffer_specs[b].persistent) continue;
    const std::string key = std::string{"after."} + run.buffer_specs[b].name;
    if (run.buffer_specs[b].follows_model)
      check_close<T>(reinterpret_cast<const T*>(run.buffer(b)), at(key), name + " " + key + where);
    else
      CHECK(std::memcmp(run.buffer(b), at(key).bytes.data(), at(key).bytes.size()) == 0);
  }
  for (std::size_t o = 0; o < run.outs.size(); ++o)
    copy_bytes(run.output_gradients[o].data(), at(numbered("gy", o)));
  const auto check_inputs = [&](const std::string& when) {
    for (std::size_t i = 0; i < run.ins.size(); ++i)
      if (run.kinds[i] == element_kind::real)
        check_close<T>(run.input_gradients[i].data(), at(numbered("gx", i)),
                       name + numbered(" gx", i) + when + where);
  };
  const auto check_parameters = [&](T scale, const std::string& when) {
    for (std::size_t p = 0; p < run.parameter_specs.size(); ++p) {
      const std::string key = std::string{"grad."} + run.parameter_specs[p].name;
      const dim_t n = run.parameter_specs[p].extents.numel();
      for (dim_t i = 0; i < n; ++i) run.gradient(p)[i] *= scale;
      check_close<T>(run.gradient(p), at(key), name + " " + key + when + where);
    }
  };
  run.backward(false);
  check_inputs("");
  check_parameters(1, "");

  // Parameter gradients accumulate; input gradients are overwritten, or not requested.
  run.backward(true);
  check_inputs(" again");
  check_parameters(T{1} / 2, " twice");
  run.backward(false, false);
  check_parameters(1, " alone");
}

void compare_layer_runs(const std::string& area, const std::string& name, bool training,
                        const make_leaf_run<float>& single, const make_leaf_run<double>& twice) {
  const std::string family = "layers_" + area;
  compares(family, name);
  ikebana::shape_list ins;
  for (std::size_t i = 0; i < ikebana::max_arity; ++i)
    if (const auto* x = recorded<float>(family).find(name + "/x" + std::to_string(i)))
      ins.push_back(x->extents);
  for_each_instruction_set([&](const std::string& where) {
    compare_layer_once<float>(family, name, *single(ins), training, where);
    compare_layer_once<double>(family, name, *twice(ins), training, where);
  });
}
