#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/dependent.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/span_of.hpp"
#include "ikebana/model/state/patterns.hpp"
#include "ikebana/optim/optimizer_options.hpp"

namespace ikebana {

/// Options of the parameters whose paths match one of the patterns: `adamw{model, {.lr = 1e-3},
/// group<"head">{.lr = 1e-2}}`. What is not set is as for all parameters. In a pattern, `*` stands
/// for any characters; the path of a module stands for its parameters. Where several groups match,
/// the last one counts, option by option. A pattern that matches nothing is a compile error.
template <detail::literal... Patterns>
struct group {
  std::optional<double> lr{};
  std::optional<double> momentum{};
  std::optional<double> dampening{};
  std::optional<std::pair<double, double>> betas{};
  std::optional<double> eps{};
  std::optional<bool> decoupled_weight_decay{};
  std::optional<bool> use_muon{};
  std::optional<double> weight_decay{};
  std::optional<bool> nesterov{};
  std::optional<bool> maximize{};
  std::optional<double> alpha{};
  std::optional<bool> centered{};
  std::optional<double> lr_decay{};
  std::optional<double> rho{};
  std::optional<double> momentum_decay{};
  std::optional<double> lambd{};
  std::optional<double> t0{};
  std::optional<std::pair<double, double>> etas{};
  std::optional<std::pair<double, double>> step_sizes{};
};

/// The group of parameters without weight decay: `no_decay<"*.bias", "*norm*">{}`.
template <detail::literal... Patterns>
struct no_decay {};

/// A group as an optimizer keeps it: `optimizer.groups()[0].options.lr`.
struct parameter_group {
  std::string name;  ///< The patterns, separated by commas.
  group<> options;
};

namespace detail {

template <class G>
struct patterns_of_group;
template <literal... P>
struct patterns_of_group<group<P...>> {
  using type = pattern_list<P...>;
};
template <literal... P>
struct patterns_of_group<no_decay<P...>> {
  using type = pattern_list<P...>;
};
template <class G>
using patterns_of = typename patterns_of_group<G>::type;

template <class G>
concept option_group = requires {
  typename patterns_of<G>;
}
&&(patterns_of<G>::size > 0);

template <literal... P>
parameter_group to_parameter_group(const group<P...>& g) {
  parameter_group out{pattern_list<P...>::name(), {}};
  for_each_option_name(
      [&](const char*, const char*, auto member) { member(out.options) = member(g); });
  return out;
}
template <literal... P>
parameter_group to_parameter_group(const no_decay<P...>&) {
  return {pattern_list<P...>::name(), {.weight_decay = 0}};
}

/// By parameter, in PyTorch's order, which groups it is in: bit k for group k.
template <class Model, class... Groups>
constexpr auto groups_of_parameters() {
  static_assert(sizeof...(Groups) <= 64, "ikebana: an optimizer takes at most 64 groups");
  constexpr auto program = Model::lowered();
  std::array<std::uint64_t, Model::parameter_count> of{};
  for (std::size_t i = 0; i < Model::parameter_count; ++i) {
    const path_text path = program.path(program.parameters[i]);
    int k = 0;
    ((of[i] |= std::uint64_t{patterns_of<Groups>::matches(path.view())} << k++), ...);
  }
  return of;
}

/// Consecutive elements of the flat parameters that have the same options, up to `end`.
struct option_segment {
  dim_t end = 0;
  std::size_t set = 0;  ///< The number of their set of options.
};

/// The options of an optimizer, by parameter: `all`, and those of groups. Set 0 is that of
/// parameters in no group.
template <class Options>
class grouped_options {
 public:
  Options all;

  grouped_options(const char* optimizer, const Options& options)
      : all{options}, optimizer_{optimizer} {}

  /// Throws error for a group that sets what is no option, or is given twice. Allocates.
  template <class Model, class... Groups>
  void take(const Model& model, const Groups&... groups) {
    if constexpr (sizeof...(Groups) > 0) {
      (groups_.push_back(to_parameter_group(groups)), ...);
      check_groups();
      static constexpr auto members = groups_of_parameters<Model, Groups...>();
      const auto parameters = model.current_program().all_parameters();
      std::vector<placed> places;
      for (std::size_t i = 0; i < members.size(); ++i) {
        const dim_t begin = model.layout().offsets[i];
        places.push_back({begin, begin + parameters[i].spec.extents.numel(), members[i]});
      }
      divide(places);
    }
  }

  std::span<dependent<parameter_group, Options>> groups() { return span_of(groups_); }
  std::span<const dependent<parameter_group, Options>> groups() const { return span_of(groups_); }
  /// The elements that have the same options; empty if all have.
  const std::vector<dependent<option_segment, Options>>& segments() const { return segments_; }

  Options operator[](std::size_t set) const {
    Options o = all;
    for (std::size_t k = 0; k < groups_.size(); ++k)
      if ((members_[set] >> k & 1) != 0) override_options(o, groups_[k]);
    return o;
  }
  /// Calls f for the options of every set.
  template <class F>
  void for_each(F&& f) const {
    for (std::size_t set = 0; set < members_.size(); ++set) f((*this)[set]);
  }
  /// Whether f holds for those of any set.
  template <class F>
  bool any(F&& f) const {
    bool some = false;
    for_each([&](const Options& o) { some = some || f(o); });
    return some;
  }

 private:
  struct placed {
    dim_t begin, end;
    std::uint64_t members;
  };

  void override_options(Options& o, const parameter_group& g) const {
    for_each_option_name([&](const char* name, const char*, auto member) {
      const auto& value = member(g.options);
      if (!value) return;
      if constexpr (requires { member(o); })
        member(o) = *value;
      else
        refuse_option(g, name);
    });
  }
  [[noreturn, gnu::cold]] void refuse_option(const parameter_group& g, const char* name) const {
    refuse(g, (std::string(" sets ") + name + ", which it does not have").c_str());
  }
  [[noreturn, gnu::cold]] void refuse(const parameter_group& g, const char* what) const {
    throw error(std::string(optimizer_) + ": group<\"" + g.name + "\">" + what);
  }

  void check_groups() const {
    for (std::size_t k = 0; k < groups_.size(); ++k) {
      Options unused = all;
      override_options(unused, groups_[k]);
      for (std::size_t j = 0; j < k; ++j)
        if (groups_[j].name == groups_[k].name) refuse(groups_[k], " is given twice");
    }
  }

  void divide(std::vector<placed>& places) {
    std::sort(places.begin(), places.end(), [](const placed& a, const placed& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    for (const placed& p : places) {
      if (p.begin == p.end) continue;
      std::size_t set = 0;
      while (set < members_.size() && members_[set] != p.members) ++set;
      if (set == members_.size()) members_.push_back(p.members);
      if (!segments_.empty() && segments_.back().set == set) continue;
      if (!segments_.empty()) segments_.back().end = p.begin;
      segments_.push_back({std::numeric_limits<dim_t>::max(), set});
    }
  }

  const char* optimizer_;
  std::vector<dependent<parameter_group, Options>> groups_;
  std::vector<dependent<std::uint64_t, Options>> members_{
      0};  ///< By set: the groups that its parameters are in.
  std::vector<dependent<option_segment, Options>> segments_;
};

/// The groups of an optimizer; none if it has no such member.
template <class Optimizer>
std::span<parameter_group> groups_of(Optimizer& optimizer) {
  if constexpr (requires { optimizer.groups(); })
    return optimizer.groups();
  else
    return {};
}

}  // namespace detail
}  // namespace ikebana
