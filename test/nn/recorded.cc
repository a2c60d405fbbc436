#include "recorded.hpp"

#include <functional>
#include <map>

#include "test/support/load_recorded.hpp"

template <class T>
const ikebana::state_dict& recorded(std::string_view family) {
  static std::map<std::string, ikebana::state_dict, std::less<>> families;
  auto at = families.find(family);
  if (at == families.end())
    at = families
             .emplace(family, load_recorded(std::string{family} +
                                            (std::is_same_v<T, float> ? "_f32" : "_f64")))
             .first;
  return at->second;
}
template const ikebana::state_dict& recorded<float>(std::string_view);
template const ikebana::state_dict& recorded<double>(std::string_view);

namespace {

// By family, since tests of several families share a program.
std::map<std::string, std::set<std::string>, std::less<>>& compared() {
  static std::map<std::string, std::set<std::string>, std::less<>> names;
  return names;
}

}  // namespace

void compares(std::string_view family, const std::string& name) {
  compared()[std::string{family}].insert(name);
}

std::set<std::string> not_compared(std::string_view family,
                                   const std::vector<std::string>& prefixes) {
  std::set<std::string> found;
  const std::set<std::string>& done = compared()[std::string{family}];
  for (const auto& [key, value] : recorded<float>(family).metadata())
    for (const std::string& prefix : prefixes)
      if (key.starts_with(prefix) && !done.contains(key)) found.insert(key);
  return found;
}

template <class T>
void check_close(const T* a, const ikebana::state_dict::entry& b, const std::string& what) {
  REQUIRE_MESSAGE(b.type == ikebana::dtype_of<T>, what);
  const T* expected = reinterpret_cast<const T*>(b.bytes.data());
  const std::size_t n = b.bytes.size() / sizeof(T);
  double most = 0, worst = 0;
  for (std::size_t i = 0; i < n; ++i) {
    most = std::max(most, std::abs(static_cast<double>(expected[i])));
    const double apart = std::abs(static_cast<double>(a[i]) - static_cast<double>(expected[i]));
    if (!(apart <= worst) && !std::isnan(worst)) worst = apart;  // NaN is the worst.
  }
  if constexpr (std::is_integral_v<T>)
    CHECK_MESSAGE(worst == 0, what);
  else
    CHECK_MESSAGE(worst <= tolerance<T> * (most + 0.1), what << ": " << worst << " of " << most);
}

void copy_bytes(void* to, const ikebana::state_dict::entry& from) {
  std::memcpy(to, from.bytes.data(), from.bytes.size());
}

template <class T>
void compare_once(const std::string& name, any_leaf_run<T>& run, bool training,
                  const std::string& where) {
  using namespace ikebana;
  const state_dict& dict = recorded<T>("modules");
  const auto at = [&](const std::string& tensor) -> const state_dict::entry& {
    return dict.at(name + "/" + tensor);
  };
  REQUIRE_MESSAGE(run.out == at("y").extents, name);
  copy_bytes(run.input.data(), at("x"));
  for (std::size_t p = 0; p < run.parameter_specs.size(); ++p) {
    REQUIRE(run.parameter_specs[p].extents == at(run.parameter_specs[p].name).extents);
    copy_bytes(run.parameter(p), at(run.parameter_specs[p].name));
  }
  for (std::size_t b = 0; b < run.buffer_specs.size(); ++b) {
    REQUIRE(run.buffer_specs[b].extents == at(run.buffer_specs[b].name).extents);
    copy_bytes(run.buffer(b), at(run.buffer_specs[b].name));
  }
  // None of PyTorch's parameters or buffers is left out.
  std::size_t states = 0;
  for (const state_dict::entry& e : dict)
    states += e.name.starts_with(name + "/grad.") || e.name.starts_with(name + "/after.");
  CHECK_MESSAGE(states == run.parameter_specs.size() + run.buffer_specs.size(), name);

  run.forward(training);
  check_close<T>(run.output.data(), at("y"), name + " y" + where);
  for (std::size_t b = 0; b < run.buffer_specs.size(); ++b) {
    const std::string key = std::string{"after."} + run.buffer_specs[b].name;
    if (run.buffer_specs[b].follows_model)
      check_close<T>(reinterpret_cast<const T*>(run.buffer(b)), at(key), name + " " + key + where);
    else
      CHECK(std::memcmp(run.buffer(b), at(key).bytes.data(), at(key).bytes.size()) == 0);
  }
  copy_bytes(run.output_gradient.data(), at("gy"));
  const auto check_parameter_gradients = [&](T scale, const std::string& when) {
    for (std::size_t p = 0; p < run.parameter_specs.size(); ++p) {
      const std::string key = std::string{"grad."} + run.parameter_specs[p].name;
      const dim_t n = run.parameter_specs[p].extents.numel();
      for (dim_t i = 0; i < n; ++i) run.gradient(p)[i] *= scale;
      check_close<T>(run.gradient(p), at(key), name + " " + key + when + where);
    }
  };
  run.backward(false);
  check_close<T>(run.input_gradient.data(), at("gx"), name + " gx" + where);
  check_parameter_gradients(1, "");

  // Parameter gradients accumulate; the input gradient is overwritten, or not requested.
  run.backward(true);
  check_close<T>(run.input_gradient.data(), at("gx"), name + " gx again" + where);
  check_parameter_gradients(T{1} / 2, " twice");
  run.backward(false, false);
  check_parameter_gradients(1, " alone");
}

template void check_close<float>(const float*, const ikebana::state_dict::entry&,
                                 const std::string&);
template void check_close<double>(const double*, const ikebana::state_dict::entry&,
                                  const std::string&);
void compare_runs(const std::string& name, bool training, const make_leaf_run<float>& single,
                  const make_leaf_run<double>& twice) {
  compares("modules", name);
  const ikebana::shape_list in{recorded<float>("modules").at(name + "/x").extents};
  for_each_instruction_set([&](const std::string& where) {
    compare_once<float>(name, *single(in), training, where);
    compare_once<double>(name, *twice(in), training, where);
  });
}
