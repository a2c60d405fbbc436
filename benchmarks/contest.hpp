#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "benchmarks/peaks.hpp"
#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/shape.hpp"

/// Contestants of a case, measured by turns in one process.
namespace bench {

using ikebana::dim_t;

/// Does its work that many times.
using timed = std::function<void(std::int64_t)>;

/// The loop is compiled together with `f`, so that short work pays for no indirect call.
template <class F>
timed repeated(F f) {
  return [f = std::move(f)](std::int64_t times) mutable {
    for (; times > 0; --times) {
      f();
      asm volatile("" ::: "memory");
    }
  };
}

/// One implementation of a family of problems that Ikebana is compared with.
template <class... Problems>
struct peer {
  std::string name;
  std::string version;  ///< Empty if the build has not found it.
  std::string package;  ///< The package that provides it.
  /// Prepares what solves a problem; returns nothing if the peer has no such operation.
  std::tuple<std::function<timed(const Problems&)>...> prepare;
};

/// A peer that the build has not found.
template <class Peer>
Peer absent(std::string name, std::string package) {
  return {std::move(name), "", std::move(package), {}};
}

/// The amount of work of a case.
struct work {
  double operations = 0;  ///< A multiply-add counts as two.
  number operands = number::f32;
  double read = 0, written = 0;  ///< Bytes, each array once.
  double held = 0;               ///< Bytes of all arrays, if not the sum of these.
};

struct case_info {
  std::string group;  ///< A table of the report.
  std::string name;
  work amount;
  bool is_rate = false;  ///< Printed as operations per second, not as time.
};

struct contestant {
  std::string name;
  timed run;
  /// What it computed, for comparison with the others; may be empty.
  std::span<const float> floats{};
  std::span<const double> doubles{};
  double allocations = -1;  ///< Per run; -1 if not counted.
  std::shared_ptr<const void> keeps{};
};

/// The contestants of a case, and the data that they all read.
struct field {
  std::vector<contestant> contestants;
  std::shared_ptr<const void> operands;
};

class contest {
 public:
  /// `family` is a section of the report.
  explicit contest(std::string family);
  ~contest();
  contest(const contest&) = delete;

  /// For the program's own options, before begin().
  CLI::App& options() { return options_; }

  /// Parses the options, pins the process to one processor, restarts with peers limited to one
  /// thread and to Ikebana's instruction set, measures the peaks. If it returns a number, main
  /// returns it.
  std::optional<int> begin(int argc, char** argv);

  const peaks& limits() const { return limits_; }
  bool is_quick() const { return quick_; }
  std::uint64_t seed() const { return seed_; }

  /// Records a peer, and prints that it is left out if it is absent.
  bool admit(const std::string& name, const std::string& version, const std::string& package);
  template <class... Peers>
  auto admitted(Peers... peers) {
    std::vector<std::common_type_t<Peers...>> present;
    (void)(...,
           (admit(peers.name, peers.version, peers.package) ? present.push_back(std::move(peers))
                                                            : void()));
    return present;
  }

  /// Measures one case and prints a line, unless the options exclude it. The first contestant is
  /// Ikebana; those without a run are dropped.
  void measure(const case_info& info, const std::function<field()>& make);

  /// Counts `allocations` from now on, by the program's operator new.
  void count_allocations(const std::atomic<long>& counter) { allocations_ = &counter; }

  /// Adds a value to the file of results.
  void note(const std::string& key, nlohmann::json value) { results_[key] = std::move(value); }

  /// Writes the file of results. Returns main's result.
  int end();

 private:
  class reporter;

  CLI::App options_;
  std::string family_, set_, filter_, json_, part_ = "1/1";
  double seconds_ = 0.004;
  int repetitions_ = 15;
  std::uint64_t seed_ = 0;
  const std::atomic<long>* allocations_ = nullptr;
  bool quick_ = false, list_ = false;

  std::regex wanted_;
  int part_index_ = 0, part_count_ = 1, seen_ = 0, declared_ = 0;
  peaks limits_;
  nlohmann::json results_;
};

/// The contestants that solve `problem`; each has its own `result` of `size` elements. The first is
/// Ikebana.
template <class T, class Problem, class Peers>
std::vector<contestant> contestants(const Problem& problem, dim_t size,
                                    const std::function<timed(const Problem&)>& ours,
                                    const Peers& peers) {
  std::vector<contestant> all;
  const auto enter = [&](const std::string& name,
                         const std::function<timed(const Problem&)>& prepare) {
    if (!prepare) return;
    auto memory = std::make_shared<ikebana::aligned_buffer<T>>(size);
    Problem own = problem;
    own.result = memory->data();
    timed run;
    try {
      run = prepare(own);
    } catch (const std::exception& e) {
      std::printf("  %s: %s\n", name.c_str(), e.what());
    }
    if (!run) return;
    contestant c{.name = name, .run = std::move(run), .keeps = memory};
    if constexpr (std::is_same_v<T, float>) c.floats = memory->span();
    if constexpr (std::is_same_v<T, double>) c.doubles = memory->span();
    all.push_back(std::move(c));
  };
  enter("Ikebana", ours);
  for (const auto& peer : peers)
    enter(peer.name, std::get<std::function<timed(const Problem&)>>(peer.prepare));
  return all;
}

/// Keeps operands alive.
template <class... Arrays>
std::shared_ptr<const void> keep(Arrays... arrays) {
  return std::make_shared<std::tuple<Arrays...>>(std::move(arrays)...);
}

/// An array of numbers in [low, high), the same for the same seed.
template <class T>
ikebana::aligned_buffer<T> random_array(dim_t size, std::uint64_t seed, T low = -1, T high = 1) {
  ikebana::aligned_buffer<T> x(size);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (dim_t i = 0; i < size; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    x[i] = low + (high - low) * static_cast<T>(static_cast<double>(state >> 40) / (1 << 24));
  }
  return x;
}

}  // namespace bench
