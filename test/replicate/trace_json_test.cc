#include "ikebana/replicate/trace_json.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ikebana/replicate/launch.hpp"
#include "trace_checks.hpp"

namespace ike = ikebana;
using nlohmann::json;

namespace {

ike::step_trace small_trace() {
  ike::step_trace t(1, 8);
  t.add_leaf("fc1");
  t.set_bucket(0, {12, {"fc1.bias", "fc1.weight"}});
  t.begin_pass();
  t.record(ike::trace_kind::leaf_backward, 0, 1000, 2500);
  t.record(ike::trace_kind::reduction, 0, 2000, 4250);
  return t;
}

std::vector<ike::step_trace> traces(int ranks) {
  return ike::launch(ike::threads{ranks}, [](ike::process_group auto& group) {
    auto model = trace_checks::replica<float, trace_checks::traced>(group);
    trace_checks::steps(model, 2, [](float) {});
    return ike::trace_of(model);
  });
}

/// The requirements of the format: known phases, complete events with durations, every asynchronous
/// begin with its end.
void check_format(const json& all) {
  std::map<std::tuple<std::string, std::string, int>, std::vector<double>> open;
  for (const json& e : all.at("traceEvents")) {
    const auto phase = e.at("ph").get<std::string>();
    CHECK(e.at("pid").is_number_integer());
    CHECK(e.at("name").is_string());
    if (phase == "M") continue;
    CHECK(e.at("tid").is_number_integer());
    CHECK(e.at("ts").is_number());
    const std::tuple key{e.at("cat").get<std::string>(), e.value("id", std::string{}),
                         e.at("pid").get<int>()};
    if (phase == "X") {
      CHECK(e.at("dur").get<double>() >= 0);
    } else if (phase == "b") {
      open[key].push_back(e.at("ts").get<double>());
    } else {
      REQUIRE(phase == "e");
      REQUIRE(!open[key].empty());
      CHECK(open[key].back() <= e.at("ts").get<double>());
      open[key].pop_back();
    }
  }
  for (const auto& [key, begins] : open) CHECK(begins.empty());
}

std::string temporary(const char* name) {
  const std::string own = std::to_string(::getpid()) + name;
  return (std::filesystem::temp_directory_path() / own).string();
}

json parsed(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

}  // namespace

TEST_CASE("The events of a trace as JSON") {
  const json expected = json::parse(R"({"displayTimeUnit": "ms", "traceEvents": [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "rank 1"}},
    {"ph": "X", "name": "fc1", "cat": "backward", "pid": 1, "tid": 0, "ts": 1.0, "dur": 1.5,
     "args": {"pass": 1}},
    {"ph": "b", "name": "bucket 0", "cat": "reduction", "pid": 1, "tid": 0, "ts": 2.0, "id": "1.0",
     "args": {"pass": 1, "bytes": 12, "parameters": ["fc1.bias", "fc1.weight"]}},
    {"ph": "e", "name": "bucket 0", "cat": "reduction", "pid": 1, "tid": 0, "ts": 4.25,
     "id": "1.0"}]})");
  CHECK(ike::to_json(small_trace()) == expected);
}

TEST_CASE("In the JSON of a training reductions begin before backward ends, on every rank") {
  const json all = json::parse(ike::to_json(traces(2)).dump());
  check_format(all);
  for (int rank = 0; rank < 2; ++rank) {
    CAPTURE(rank);
    double backward_begin = 0, backward_end = 0, reduction = -1;
    std::set<std::string> leaves;
    for (const json& e : all["traceEvents"]) {
      if (e["pid"] != rank || e.value("/args/pass"_json_pointer, 0) != 2) continue;
      if (e["name"] == "backward") {
        backward_begin = e["ts"];
        backward_end = backward_begin + e["dur"].get<double>();
      }
      if (e["cat"] == "backward") leaves.insert(e["name"]);
      if (e["ph"] == "b" && e["name"] == "bucket 0") reduction = e["ts"];
    }
    CHECK(leaves == std::set<std::string>{"fc1", "norm", "tanh", "fc2", "fc3"});
    CHECK(backward_begin < reduction);
    CHECK(reduction < backward_end);
  }
}

TEST_CASE("A trace is written to a file") {
  const std::string path = temporary("_ikebana_trace.json");
  ike::write_trace(path, small_trace());
  CHECK(parsed(path) == ike::to_json(small_trace()));
  const auto both = traces(2);
  ike::write_trace(path, both);
  CHECK(parsed(path) == ike::to_json(both));
  std::filesystem::remove(path);
  const std::string nowhere = temporary("_no_such_folder/trace.json");
  CHECK_THROWS_WITH_AS(ike::write_trace(nowhere, small_trace()),
                       (nowhere + ": cannot be written").c_str(), ike::io_error);
}

TEST_CASE("Rank 0 writes the traces of all ranks to one file") {
  const std::string path = temporary("_ikebana_traces.json");
  for (const int ranks : {1, 3}) {
    const auto all = ike::launch(ike::threads{ranks}, [&](ike::process_group auto& group) {
      auto model = trace_checks::replica<float, trace_checks::traced>(group);
      trace_checks::steps(model, 2, [](float) {});
      ike::write_trace(path, ike::trace_of(model), group);
      return ike::trace_of(model);
    });
    CHECK(parsed(path) == ike::to_json(all));
  }
  std::filesystem::remove(path);
  CHECK_THROWS_AS(ike::launch(ike::threads{2},
                              [&](ike::process_group auto& group) {
                                const std::string nowhere = temporary("_no_such_folder/t");
                                ike::write_trace(nowhere, small_trace(), group);
                              }),
                  ike::io_error);
}
