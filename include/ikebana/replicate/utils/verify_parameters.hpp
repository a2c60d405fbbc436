#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/span_of.hpp"
#include "ikebana/core/text.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

/// What ranks must agree on for a parameter or buffer.
struct parameter_identity {
  path_text path{};
  dtype type = dtype::float32;
  shape extents{};

  constexpr bool operator==(const parameter_identity& other) const {
    return path == other.path && type == other.type && extents == other.extents;
  }
  constexpr std::uint64_t hash() const {
    return hash_path(text<200>{name(type)}.append(extents).view(), hash_path(path.view()));
  }
};

/// The identity of parameter i of a model, or of buffer i - parameters.
template <class Model>
parameter_identity identify_parameter(const Model& m, std::size_t i) {
  const auto& p = m.current_program();
  const std::size_t parameters = p.all_parameters().size();
  constexpr dtype type = dtype_of<typename Model::value_type>;
  if (i < parameters) {
    const program_parameter& parameter = p.all_parameters()[i];
    return {p.path(parameter), type, parameter.spec.extents};
  }
  const program_buffer& buffer = p.all_buffers()[i - parameters];
  return {p.path(buffer), buffer.spec.follows_model ? type : buffer.spec.type, buffer.spec.extents};
}

namespace detail {

/// "float32 [2, 3]", after the path if paths differ.
template <class = void>
std::string describe_identity(const parameter_identity& p, bool with_path) {
  std::string out = with_path ? p.path.c_str() : "";
  if (with_path) out += ' ';
  out += name(p.type);
  return out + ' ' + text<200>{}.append(p.extents).c_str();
}

/// What all ranks throw if rank r differs from rank 0 in an entry that both have.
template <class = void>
[[noreturn]] void throw_difference(std::string_view who, const parameter_identity& a,
                                   const parameter_identity& b, std::size_t rank) {
  const bool paths = !(a.path == b.path);
  const std::string r = std::to_string(rank);
  throw state_error(std::string(who) + ": rank 0 and rank " + r +
                    " have different models: the first difference is at " + a.path.c_str() +
                    ": rank 0 has " + describe_identity(a, paths) + ", rank " + r + " has " +
                    describe_identity(b, paths));
}

template <class Group>
void verify_identities(std::span<const parameter_identity> list, Group& group,
                       std::string_view who) {
  struct fingerprint {
    std::uint64_t count, hash;
    bool operator==(const fingerprint&) const = default;
  };
  const auto world = static_cast<std::size_t>(group.size());
  const std::uint64_t count = list.size();
  fingerprint mine{count, 0};
  for (const parameter_identity& p : list) mine.hash = mine.hash * 0x100000001b3u ^ p.hash();
  std::vector<fingerprint> all(world);
  exchange(group, mine, span_of(all));
  // Every rank sees the same fingerprints and the same exchanges below, so all take the same
  // branch.
  std::uint64_t least = count, most = count;
  bool equal = true;
  for (const fingerprint& f : all) {
    least = std::min(least, f.count);
    most = std::max(most, f.count);
    equal = equal && f == all[0];
  }
  if (equal) return;

  const auto common = static_cast<std::size_t>(least);
  std::vector<std::uint64_t> hashes(common), gathered(world * common);
  for (std::size_t i = 0; i < common; ++i) hashes[i] = list[i].hash();
  group.all_gather(span_of(std::as_const(hashes)), span_of(gathered));
  std::vector<parameter_identity> there(world);
  for (std::size_t i = 0; i < common; ++i)
    for (std::size_t r = 1; r < world; ++r) {
      if (gathered[r * common + i] == gathered[i]) continue;
      exchange(group, list[i], span_of(there));
      throw_difference(who, there[0], there[r], r);
    }

  std::string text =
      std::string(who) + ": ranks have different numbers of parameters and buffers: ";
  std::size_t longest = 0;
  for (std::size_t r = 0; r < world; ++r) {
    text +=
        (r == 0 ? "rank " : ", rank ") + std::to_string(r) + " has " + std::to_string(all[r].count);
    if (all[r].count > all[longest].count) longest = r;
  }
  if (least < most) {
    exchange(group, count > common ? list[common] : parameter_identity{}, span_of(there));
    text += "; the first difference is at " + std::string(there[longest].path.c_str()) +
            ", which is not on every rank";
  }
  throw state_error(text);
}

}  // namespace detail

/// Compares the models of all ranks: the numbers of parameters and buffers, then the path, type,
/// shape and position of each. If any differ, every rank throws the same state_error, which names
/// the first path that differs, what rank 0 has there and what the first differing rank has; `who`
/// is the prefix of its text. Every rank must call it. One all_gather of 16 bytes if all are equal.
/// Allocates.
template <class Model, process_group Group>
requires requires(const Model& m) { m.current_program(); }
void verify_parameters(const Model& m, Group& group, std::string_view who = "verify_parameters") {
  const auto& p = m.current_program();
  std::vector<parameter_identity> list(p.all_parameters().size() + p.all_buffers().size());
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = identify_parameter(m, i);
  detail::verify_identities(detail::span_of(list), group, who);
}

/// The same for a list from the caller: some of a model's parameters.
template <process_group Group>
void verify_parameters(std::span<const parameter_identity> list, Group& group,
                       std::string_view who = "verify_parameters") {
  detail::verify_identities(list, group, who);
}

}  // namespace ikebana
