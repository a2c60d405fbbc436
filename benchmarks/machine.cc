#include "benchmarks/machine.hpp"

#include <benchmark/benchmark.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <string>
#include <utility>

namespace bench {
namespace {

using variables = std::initializer_list<std::pair<const char*, const char*>>;

constexpr const char* mark = "IKEBANA_BENCHMARK_STARTED";

void set_all(const variables& values) {
  for (const auto& [name, value] : values) setenv(name, value, 1);
}

std::string line_of(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) {
      const auto begin = line.find_first_not_of(" \t:=\"", key.size());
      return begin == std::string::npos
                 ? ""
                 : line.substr(begin, line.find_last_not_of('"') + 1 - begin);
    }
  return "";
}

void pin() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return;
  for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu)
    if (CPU_ISSET(cpu, &mine)) {
      CPU_ZERO(&mine);
      CPU_SET(cpu, &mine);
      sched_setaffinity(0, sizeof mine, &mine);
      return;
    }
}

}  // namespace

void start_alone(char** argv, const std::string& set) {
  if (std::getenv(mark) != nullptr) return;
  pin();
  set_all({{mark, "1"},
           {"OMP_NUM_THREADS", "1"},
           {"OPENBLAS_NUM_THREADS", "1"},
           {"BLIS_NUM_THREADS", "1"},
           {"MKL_NUM_THREADS", "1"}});
  if (set == "avx2")
    set_all({{"ONEDNN_MAX_CPU_ISA", "AVX2"},
             {"OPENBLAS_CORETYPE", "Haswell"},
             {"BLIS_ARCH_TYPE", "3"},  // Haswell
             {"LIBXSMM_TARGET", "hsw"},
             {"ATEN_CPU_CAPABILITY", "avx2"}});
  else if (set.starts_with("sse") || set == "scalar")
    set_all({{"ONEDNN_MAX_CPU_ISA", "SSE41"},
             {"OPENBLAS_CORETYPE", "Nehalem"},
             {"BLIS_ARCH_TYPE", "5"},  // Penryn
             {"LIBXSMM_TARGET", "wsm"},
             {"ATEN_CPU_CAPABILITY", "default"}});
  else if (set == "avx512")
    // Debian's versions take processors that they do not know for older ones.
    set_all({{"OPENBLAS_CORETYPE", "SkylakeX"}, {"BLIS_ARCH_TYPE", "0"}});
  execv("/proc/self/exe", argv);
}

nlohmann::json describe_machine(const std::string& set) {
  nlohmann::json caches = nlohmann::json::array();
  for (const auto& cache : benchmark::CPUInfo::Get().caches)
    caches.push_back({{"name", "L" + std::to_string(cache.level)},
                      {"type", cache.type},
                      {"bytes", cache.size},
                      {"cores", cache.num_sharing}});
  return {
    {"processor", line_of("/proc/cpuinfo", "model name")},
        {"processors", benchmark::CPUInfo::Get().num_cpus},
        {"flags", line_of("/proc/cpuinfo", "flags")},
        {"system", line_of("/etc/os-release", "PRETTY_NAME")}, {"caches", caches},
#if defined(__clang__)
        {"compiler", "clang " __clang_version__},
#else
        {"compiler", "g++ " __VERSION__},
#endif
    {
      "instruction_set", set
    }
  };
}

}  // namespace bench
