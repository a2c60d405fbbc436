#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "ikebana/model/state_dict.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/clip_grad.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/support/load_recorded.hpp"

// Clipped gradients and the steps made with them, compared with PyTorch's records
// (test/data/clipping.py).

namespace ike = ikebana;

namespace {

/// The interface that an optimizer needs of a model.
template <class T>
struct flat_model {
  using value_type = T;
  std::vector<T> values, slopes;

  explicit flat_model(std::size_t n) : values(n), slopes(n) {}
  std::span<T> parameters() { return values; }
  std::span<T> gradients() { return slopes; }
};

template <class T>
struct recorded_clipping {
  static constexpr std::size_t elements = 64, steps = 5;
  static constexpr double max_norm = 3;
  static constexpr double tolerance = sizeof(T) == 4 ? 2e-6 : 4e-15;

  ike::state_dict record = load_recorded("clipping");
  std::string type = sizeof(T) == 4 ? "f32/" : "f64/";

  const T* at(const std::string& name) const {
    return reinterpret_cast<const T*>(record.at(type + name).bytes.data());
  }
  void copy(const T* from, std::span<T> to) const {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i];
  }
  static bool close(const T* expected, std::span<const T> got) {
    for (std::size_t i = 0; i < got.size(); ++i)
      if (!(std::fabs(static_cast<double>(got[i]) - static_cast<double>(expected[i])) <=
            tolerance * (1 + std::fabs(static_cast<double>(expected[i])))))
        return false;
    return true;
  }

  /// With clipping as a separate pass or, if `fused`, in the optimizer's.
  template <class Optimizer, class Options>
  void check(const std::string& norm, double p, const std::string& name, Options options,
             bool fused) const {
    INFO(type << norm << '/' << name << (fused ? ", fused" : ""));
    flat_model<T> model(elements);
    copy(at("parameters"), model.parameters());
    if (fused) options.max_norm = max_norm;
    Optimizer optimizer{model, options};
    for (std::size_t step = 0; step < steps; ++step) {
      copy(at("gradients") + step * elements, model.gradients());
      double found = 0;
      if (!fused) {
        found = ike::clip_grad_norm(model, max_norm, {.norm_type = p});
        CHECK(close(at(norm + "/clipped") + step * elements, model.gradients()));
      }
      optimizer.step();
      if (fused) found = optimizer.gradient_norm();
      CHECK(found ==
            doctest::Approx(static_cast<double>(at(norm + "/norms")[step])).epsilon(tolerance));
      CHECK(close(at(norm + '/' + name) + step * elements, model.parameters()));
    }
  }

  void check(const std::string& norm, double p, bool fused = false) const {
    check<ike::sgd<T>>(norm, p, "sgd",
                       ike::sgd_options{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}, fused);
    check<ike::adam<T>>(norm, p, "adam", ike::adam_options{.lr = 0.01, .weight_decay = 0.01},
                        fused);
    check<ike::adamw<T>>(norm, p, "adamw", ike::adamw_options{.lr = 0.01, .amsgrad = true}, fused);
  }
};

}  // namespace

TEST_CASE_TEMPLATE("clipped steps are those that PyTorch recorded", T, float, double) {
  const recorded_clipping<T> recorded;
  recorded.check("2", 2);
  recorded.check("2", 2, true);
  recorded.check("1", 1);
  recorded.check("inf", std::numeric_limits<double>::infinity());
}
