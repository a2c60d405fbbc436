#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

/// The result of one measurement.
struct measured {
  double seconds = 0;
  double sent = 0;  ///< Bytes that a rank sends per step.
};

/// Collects runs named "kind/case/contestant" and prints the median of each next to the others of
/// its case.
class table_reporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& context) override {
    PrintBasicContext(&GetErrorStream(), context);
    return true;
  }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const std::string name = run.run_name.function_name;
      if (run.error_occurred) std::printf("%s: %s\n", name.c_str(), run.error_message.c_str());
      if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
      if (samples_.find(name) == samples_.end()) order_.push_back(name);
      samples_[name].seconds.push_back(run.real_accumulated_time /
                                       static_cast<double>(run.iterations));
      const auto sent = run.counters.find("sent");
      if (sent != run.counters.end()) samples_[name].sent = sent->second.value;
    }
  }

  void print() {
    std::sort(order_.begin(), order_.end());
    print_steps();
    print_all_reduces();
  }

 private:
  struct samples {
    std::vector<double> seconds;
    double sent = 0;

    double median() const {
      std::vector<double> sorted = seconds;
      std::sort(sorted.begin(), sorted.end());
      return sorted[sorted.size() / 2];
    }
    /// Half of the range, relative to the median.
    double spread() const {
      const auto [low, high] = std::minmax_element(seconds.begin(), seconds.end());
      return (*high - *low) / 2 / median();
    }
  };

  /// "a/b/c" is {"a", "b", "c"}.
  static std::vector<std::string> parts(const std::string& name) {
    const std::size_t first = name.find('/'), second = name.find('/', first + 1);
    return {name.substr(0, first), name.substr(first + 1, second - first - 1),
            name.substr(second + 1)};
  }

  const samples* find(const std::string& name) const {
    const auto found = samples_.find(name);
    return found == samples_.end() ? nullptr : &found->second;
  }

  void print_steps() const {
    bool titled = false;
    for (const std::string& name : order_) {
      const auto part = parts(name);
      if (part[0] != "step") continue;
      if (!titled)
        std::printf(
            "\nA training step, batch of 32 per rank, float, SGD with momentum; medians.\n"
            "| network | | ms | +- %% | MB sent | PyTorch's time / this "
            "|\n|---|---|---|---|---|---|\n");
      titled = true;
      const samples& own = samples_.at(name);
      // Compared with PyTorch on as many ranks, in the same mode.
      const bool alone = part[2].find(" 1 ") != std::string::npos;
      const bool late = part[2].find("no overlap") != std::string::npos;
      const samples* peer = find("step/" + part[1] + "/PyTorch " +
                                 (alone  ? "1 process"
                                  : late ? "DDP 2 no overlap"
                                         : "DDP 2"));
      std::printf("| %s | %s | %.3f | %.0f | %.3f | ", part[1].c_str(), part[2].c_str(),
                  own.median() * 1e3, own.spread() * 100, own.sent / 1e6);
      if (peer == nullptr)
        std::printf("|\n");
      else
        std::printf("%.2f |\n", peer->median() / own.median());
    }
  }

  void print_all_reduces() const {
    std::vector<std::size_t> sizes;
    for (const std::string& name : order_)
      if (const auto part = parts(name); part[0] == "all_reduce")
        if (const std::size_t n = std::stoul(part[1]);
            std::find(sizes.begin(), sizes.end(), n) == sizes.end())
          sizes.push_back(n);
    if (sizes.empty()) return;
    std::sort(sizes.begin(), sizes.end());
    std::printf(
        "\nAll-reduce (sum of float, 2 ranks), GB/s: bytes of a rank's array divided by the time; "
        "medians.\n"
        "| KiB | thread_group | mpi_group | MPI_Allreduce | gloo | thread_group / MPI_Allreduce | "
        "mpi_group / MPI_Allreduce |\n|---|---|---|---|---|---|---|\n");
    for (const std::size_t bytes : sizes) {
      const auto rate = [&](const char* who) {
        const samples* s = find("all_reduce/" + std::to_string(bytes) + "/" + who);
        return s == nullptr ? 0.0 : static_cast<double>(bytes) / s->median() / 1e9;
      };
      const double threads = rate("thread_group"), mpi = rate("mpi_group"),
                   open_mpi = rate("MPI_Allreduce");
      std::printf("| %zu ", bytes / 1024);
      for (const double r : {threads, mpi, open_mpi, rate("gloo")}) cell(r);
      cell(open_mpi > 0 ? threads / open_mpi : 0);
      cell(open_mpi > 0 ? mpi / open_mpi : 0);
      std::printf("|\n");
    }
  }

  static void cell(double value) {
    if (value > 0)
      std::printf("| %.2f ", value);
    else
      std::printf("| ");
  }

  std::map<std::string, samples> samples_;
  std::vector<std::string> order_;
};
