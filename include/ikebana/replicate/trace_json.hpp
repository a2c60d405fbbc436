#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/trace.hpp"

namespace ikebana {

namespace detail {

inline nlohmann::json trace_record(const char* phase, const step_trace& t, const trace_event& e,
                                   std::string name, const char* category) {
  return {{"ph", phase},     {"name", std::move(name)},
          {"cat", category}, {"pid", t.rank()},
          {"tid", 0},        {"ts", static_cast<double>(e.begin) / 1000}};
}

inline void append_event(nlohmann::json& events, const step_trace& t, const trace_event& e) {
  const std::string bucket = "bucket " + std::to_string(e.index);
  const auto complete = [&](std::string name, const char* category) {
    nlohmann::json j = trace_record("X", t, e, std::move(name), category);
    j["dur"] = static_cast<double>(e.end - e.begin) / 1000;
    j["args"] = {{"pass", e.pass}};
    events.push_back(std::move(j));
  };
  switch (e.kind) {
    case trace_kind::forward:
      return complete("forward", "phase");
    case trace_kind::backward:
      return complete("backward", "phase");
    case trace_kind::optimizer:
      return complete("optimizer", "phase");
    case trace_kind::leaf_forward:
      return complete(t.leaves()[e.index], "forward");
    case trace_kind::leaf_backward:
      return complete(t.leaves()[e.index], "backward");
    case trace_kind::wait:
      return complete("wait for " + bucket, "wait");
    case trace_kind::buffers:
      return complete("broadcast buffers", "wait");
    case trace_kind::reduction:
      break;
  }
  // Several can be in flight: each gets its own row.
  nlohmann::json j = trace_record("b", t, e, bucket, "reduction");
  j["id"] = std::to_string(t.rank()) + "." + std::to_string(e.index);
  nlohmann::json end = j;
  j["args"] = {{"pass", e.pass},
               {"bytes", t.buckets()[e.index].bytes},
               {"parameters", t.buckets()[e.index].parameters}};
  end["ph"] = "e";
  end["ts"] = static_cast<double>(e.end) / 1000;
  events.push_back(std::move(j));
  events.push_back(std::move(end));
}

/// A rank's events as a JSON array.
inline nlohmann::json trace_events(const step_trace& t) {
  nlohmann::json events = nlohmann::json::array();
  events.push_back({{"ph", "M"},
                    {"name", "process_name"},
                    {"pid", t.rank()},
                    {"args", {{"name", "rank " + std::to_string(t.rank())}}}});
  for (std::size_t i = 0; i < t.size(); ++i) append_event(events, t, t[i]);
  return events;
}

inline void write_trace_events(const std::string& path, nlohmann::json events) {
  const nlohmann::json all{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  std::ofstream file(path, std::ios::binary);
  file << all.dump() << '\n';
  file.close();
  if (!file) throw io_error(path + ": cannot be written");
}

}  // namespace detail

/// The events of some ranks in the trace event format of chrome://tracing: one process per rank,
/// phases and leaves as nested complete events, reductions as asynchronous events. Times are
/// microseconds of the steady clock, which processes on one machine share and machines do not.
/// Allocates.
inline nlohmann::json to_json(std::span<const step_trace> traces) {
  nlohmann::json events = nlohmann::json::array();
  for (const step_trace& t : traces)
    for (nlohmann::json& e : detail::trace_events(t)) events.push_back(std::move(e));
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
}
inline nlohmann::json to_json(const step_trace& trace) {
  return to_json(std::span<const step_trace>{&trace, 1});
}

/// Writes a file for chrome://tracing and https://ui.perfetto.dev. Throws io_error.
inline void write_trace(const std::string& path, std::span<const step_trace> traces) {
  nlohmann::json all = to_json(traces);
  detail::write_trace_events(path, std::move(all["traceEvents"]));
}
inline void write_trace(const std::string& path, const step_trace& trace) {
  write_trace(path, std::span<const step_trace>{&trace, 1});
}

/// The same for all ranks of a group, each of which must call it: rank 0 writes. Throws io_error on
/// every rank, and communication_error.
template <process_group Group>
void write_trace(const std::string& path, const step_trace& trace, Group& group) {
  const std::string mine = detail::trace_events(trace).dump();
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<std::int64_t> sizes(ranks);
  exchange(group, static_cast<std::int64_t>(mine.size()), std::span{sizes});
  std::size_t longest = 0;
  for (const std::int64_t n : sizes) longest = std::max(longest, static_cast<std::size_t>(n));
  std::vector<std::uint8_t> padded(mine.begin(), mine.end()), all(longest * ranks);
  padded.resize(longest);
  group.all_gather(std::span<const std::uint8_t>{padded}, std::span{all});

  std::array<std::uint8_t, 1> failed{0};
  if (group.rank() == 0) {
    nlohmann::json events = nlohmann::json::array();
    for (std::size_t r = 0; r < ranks; ++r) {
      const auto* text = all.data() + r * longest;
      for (nlohmann::json& e : nlohmann::json::parse(text, text + sizes[r]))
        events.push_back(std::move(e));
    }
    try {
      detail::write_trace_events(path, std::move(events));
    } catch (const io_error&) {
      failed[0] = 1;
    }
  }
  group.broadcast(std::span<std::uint8_t>{failed}, 0);
  if (failed[0] != 0) throw io_error(path + ": cannot be written");
}

}  // namespace ikebana
