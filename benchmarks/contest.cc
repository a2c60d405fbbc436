#include "benchmarks/contest.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <random>
#include <stdexcept>

#include "benchmarks/machine.hpp"
#include "ikebana/cpu/dispatch.hpp"

namespace bench {
namespace {

/// The largest difference of two results, relative to the largest number in the first.
template <class T>
double distance(std::span<const T> a, std::span<const T> b) {
  if (a.size() != b.size()) return 0;
  double most = 0, scale = 1e-30;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    scale = std::max(scale, std::abs(static_cast<double>(a[i])));
  }
  return most / scale;
}

struct sample {
  double median = 0, least = 0, spread = 0;
};

sample summarise(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  // Half of the interquartile range, relative to the median.
  const double spread =
      (seconds[seconds.size() * 3 / 4] - seconds[seconds.size() / 4]) / 2 / median;
  return {median, seconds.front(), spread};
}

std::string in_units(const case_info& info, double seconds) {
  char text[32];
  if (info.is_rate)
    std::snprintf(text, sizeof text, "%.1f G/s", info.amount.operations / seconds / 1e9);
  else if (seconds < 1e-6)
    std::snprintf(text, sizeof text, "%.1f ns", seconds * 1e9);
  else if (seconds < 1e-3)
    std::snprintf(text, sizeof text, "%.3g us", seconds * 1e6);
  else
    std::snprintf(text, sizeof text, "%.3g ms", seconds * 1e3);
  return text;
}

/// How often a run called operator new, if that is counted.
std::string calls(const contestant& c) {
  return c.allocations < 0 ? "" : " [" + std::to_string(static_cast<long>(c.allocations)) + "]";
}

}  // namespace

/// Keeps the time of every run, by contestant: CPU time of all threads, which excludes other load
/// on the machine.
class contest::reporter : public benchmark::BenchmarkReporter {
 public:
  explicit reporter(std::size_t contestants) : seconds(contestants) {}
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs)
      if (run.run_type == Run::RT_Iteration && !run.error_occurred)
        seconds[std::stoul(run.run_name.function_name)].push_back(
            run.cpu_accumulated_time / static_cast<double>(run.iterations));
  }
  std::vector<std::vector<double>> seconds;
};

contest::contest(std::string family) : options_{family}, family_{std::move(family)} {
  options_.add_option("--filter", filter_, "only cases whose name holds this regular expression");
  options_.add_option("--json", json_, "write the results to this file");
  options_.add_option("--seconds", seconds_, "the least time of one run")->capture_default_str();
  options_.add_option("--repetitions", repetitions_, "runs of each contestant")
      ->capture_default_str();
  options_.add_option("--part", part_, "i/n: only every n-th case")->capture_default_str();
  options_.add_option("--seed", seed_, "of random sizes; 0 for another one every time");
  options_.add_flag("--quick", quick_, "fewer and shorter runs");
  options_.add_flag("--list", list_, "name the cases and measure none");
}

contest::~contest() = default;

std::optional<int> contest::begin(int argc, char** argv) {
  try {
    options_.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return options_.exit(e);
  }
  const std::string set = set_ = name(ikebana::cpu::active_instruction_set());
  start_alone(argv, set);
  if (quick_) repetitions_ = std::min(repetitions_, 7), seconds_ = std::min(seconds_, 0.002);
  if (seed_ == 0) seed_ = std::random_device{}();
  wanted_ = std::regex{filter_};
  if (std::sscanf(part_.c_str(), "%d/%d", &part_index_, &part_count_) != 2 || part_index_ < 1 ||
      part_index_ > part_count_) {
    std::fprintf(stderr, "--part is %s; it is of the form 2/3\n", part_.c_str());
    return 1;
  }
  std::string program = argv[0], interleave = "--benchmark_enable_random_interleaving=true";
  char* arguments[] = {program.data(), interleave.data()};
  int count = 2;
  benchmark::Initialize(&count, arguments);

  results_ = {{"family", family_},
              {"machine", describe_machine(set)},
              {"peers", nlohmann::json::object()},
              {"absent", nlohmann::json::array()},
              {"cases", nlohmann::json::array()}};
  if (list_) return std::nullopt;
  limits_ = measure_peaks(set);
  nlohmann::json memory = nlohmann::json::array(), operations;
  std::printf("%s, %s. Peaks:", results_["machine"]["processor"].get<std::string>().c_str(),
              set.c_str());
  for (const number n : {number::f32, number::f64, number::bf16, number::int8})
    if (limits_.of(n) > 0) {
      operations[std::string{name(n)}] = limits_.of(n);
      std::printf(" %s %.0f G/s,", std::string{name(n)}.c_str(), limits_.of(n) / 1e9);
    }
  std::printf(" read / copy");
  for (const memory_level& level : limits_.levels) {
    memory.push_back({{"name", level.name}, {"read", level.read}, {"copy", level.copy}});
    std::printf(" %s %.0f / %.0f", level.name.c_str(), level.read / 1e9, level.copy / 1e9);
  }
  std::printf(" GB/s\n");
  results_["peaks"] = {{"operations", operations}, {"memory", memory}};
  return std::nullopt;
}

bool contest::admit(const std::string& name, const std::string& version,
                    const std::string& package) {
  if (version.empty()) {
    std::printf("%s is left out: the build has not found it (%s)\n", name.c_str(), package.c_str());
    results_["absent"].push_back(name);
    return false;
  }
  results_["peers"][name] = version;
  return true;
}

void contest::measure(const case_info& info, const std::function<field()>& make) {
  const std::string full = info.group + ": " + info.name;
  const int place = declared_++;
  if (!std::regex_search(full, wanted_)) return;
  if (seen_++ % part_count_ != part_index_ - 1) return;
  if (list_) {
    std::printf("%s\n", full.c_str());
    return;
  }

  field entered = make();
  std::vector<contestant>& all = entered.contestants;
  std::erase_if(all, [](const contestant& c) { return !c.run; });
  std::string differing;
  for (contestant& c : all) {
    try {
      c.run(1);
    } catch (const std::exception& e) {
      std::printf("  %s: %s\n", c.name.c_str(), e.what());
      c.run = {};
      continue;
    }
    if (allocations_ != nullptr) {
      const long before = *allocations_;
      c.run(1);
      c.allocations = static_cast<double>(*allocations_ - before);
    }
    if (distance(all[0].floats, c.floats) > 1e-3 || distance(all[0].doubles, c.doubles) > 1e-9)
      differing += (differing.empty() ? "" : ", ") + c.name;
  }
  std::erase_if(all, [](const contestant& c) { return !c.run; });

  // The peak is one more contestant, since the processor's clock is not constant.
  const peak_loop peak = operations_loop(set_, info.amount.operands);
  if (info.amount.operations > 0 && peak.run != nullptr)
    all.push_back(
        {.name = "peak", .run = [peak](std::int64_t times) { peak.run(times, nullptr, 0); }});
  reporter times(all.size());
  benchmark::ClearRegisteredBenchmarks();
  for (std::size_t i = 0; i < all.size(); ++i)
    benchmark::RegisterBenchmark(std::to_string(i).c_str(),
                                 [&run = all[i].run](benchmark::State& state) {
                                   while (state.KeepRunningBatch(state.max_iterations))
                                     run(static_cast<std::int64_t>(state.max_iterations));
                                 })
        ->MeasureProcessCPUTime()
        ->MinTime(seconds_)
        ->Repetitions(repetitions_);
  benchmark::RunSpecifiedBenchmarks(&times);

  peaks limits = limits_;
  if (all.back().name == "peak") {
    limits.operations[static_cast<int>(info.amount.operands)] =
        peak.operations / summarise(times.seconds.back()).median;
    all.pop_back();
  }
  nlohmann::json entries = nlohmann::json::array();
  std::string others;
  double ours = 0, best = 0, our_least = 0, best_least = 0;
  std::string best_name;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const sample s = summarise(times.seconds[i]);
    nlohmann::json entry = {
        {"name", all[i].name}, {"seconds", s.median}, {"least", s.least}, {"spread", s.spread}};
    if (all[i].allocations >= 0) entry["allocations"] = all[i].allocations;
    entries.push_back(std::move(entry));
    if (i == 0) {
      ours = s.median, our_least = s.least;
      continue;
    }
    if (best_least == 0 || s.least < best_least) best_least = s.least;
    others += ", " + all[i].name + " " + in_units(info, s.median) + calls(all[i]);
    if (best == 0 || s.median < best) best = s.median, best_name = all[i].name;
  }
  const work& w = info.amount;
  const double limit = limits.seconds(w.operations, w.operands, w.read, w.written,
                                      w.held > 0 ? w.held : w.read + w.written);
  std::printf("%-44s %10s", full.c_str(), (in_units(info, ours) + calls(all[0])).c_str());
  if (best > 0)
    std::printf("  %5.2f of %s's time (least: %.2f)", ours / best, best_name.c_str(),
                our_least / best_least);
  if (limit > 0) std::printf(", %.0f %% of the limit", 100 * limit / ours);
  std::printf("%s\n", others.c_str());
  if (!differing.empty()) std::printf("  results differ: %s\n", differing.c_str());
  std::fflush(stdout);

  nlohmann::json entry = {{"place", place},
                          {"group", info.group},
                          {"name", info.name},
                          {"operations", info.amount.operations},
                          {"bytes", info.amount.read + info.amount.written},
                          {"rate", info.is_rate},
                          {"limit", limit},
                          {"contestants", entries}};
  if (!differing.empty()) entry["differing"] = differing;
  results_["cases"].push_back(std::move(entry));
}

int contest::end() {
  if (json_.empty() || list_) return 0;
  std::ofstream out(json_);
  out << results_.dump(1) << '\n';
  return out.good() ? 0 : 1;
}

}  // namespace bench
