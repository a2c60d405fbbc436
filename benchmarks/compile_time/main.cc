// Prints compile time and memory of programs that use the library: tools/bazel run
// //benchmarks:compile_time

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

extern char** environ;

namespace {

struct cost {
  double seconds = 0;
  double mebibytes = 0;
  bool ok = false;
};

/// Runs a program and waits for it. The time is CPU time, which other programs hardly affect; the
/// memory is the largest of any of its processes.
cost run(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& w : words) arguments.push_back(const_cast<char*>(w.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0)
    return {};
  int status = 0;
  rusage used{};
  if (wait4(child, &status, 0, &used) != child) return {};
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return {seconds(used.ru_utime) + seconds(used.ru_stime),
          static_cast<double>(used.ru_maxrss) / 1024,
          WIFEXITED(status) && WEXITSTATUS(status) == 0};
}

struct program {
  std::string name;
  std::string file;
  std::string define;
  std::string header{};  ///< Skipped where there is none of this name.
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Seconds and memory of compiling programs that use Ikebana, with -O2."};
  std::vector<std::string> compilers{"g++", "clang++"};
  std::vector<std::string> include;
  std::string only;
  const char* const workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  std::string root = workspace != nullptr ? workspace : ".";
  app.add_option("--compiler", compilers, "compilers to run")->capture_default_str();
  app.add_option("--include", include, "further include directories");
  app.add_option("--only", only, "only programs whose name contains this");
  app.add_option("--root", root, "the checkout")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const std::vector<program> programs{
      {"five standard headers", "standard.cc", ""},
      {"umbrella header", "umbrella.cc", ""},
      {"the same, the kernels elsewhere", "umbrella.cc", "-DIKEBANA_EXTERN_KERNELS"},
      {"umbrella header and replicas", "replicate.cc", ""},
      {"LeNet training", "lenet.cc", ""},
      {"MLP and LeNet training", "mlp_lenet.cc", ""},
      {"the same, their kernels elsewhere", "mlp_lenet.cc", "-DIKEBANA_EXTERN_KERNELS"},
      {"the same by dlib", "dlib.cc", "", "dlib/dnn.h"},
      {"ResNet-18 training", "resnet18.cc", ""},
      {"12-layer transformer training", "transformer.cc", ""},
      {"the same, its kernels elsewhere", "transformer.cc", "-DIKEBANA_EXTERN_KERNELS"},
      {"25 linear layers", "linear.cc", "-DIKEBANA_LINEAR_LAYERS=25"},
      {"50 linear layers", "linear.cc", "-DIKEBANA_LINEAR_LAYERS=50"},
      {"100 linear layers", "linear.cc", "-DIKEBANA_LINEAR_LAYERS=100"},
      {"200 linear layers", "linear.cc", "-DIKEBANA_LINEAR_LAYERS=200"}};
  bool ok = true;
  for (const std::string& compiler : compilers) {
    std::printf("%-34s %10s %10s\n", compiler.c_str(), "seconds", "MiB");
    for (const program& p : programs) {
      if (p.name.find(only) == std::string::npos) continue;
      if (!p.header.empty() && access(("/usr/include/" + p.header).c_str(), R_OK) != 0) continue;
      std::vector<std::string> words{
          compiler,   "-std=c++20", "-O2", "-c", "-o", "/dev/null", "-I" + root + "/include",
          "-I" + root};
      for (const std::string& directory : include) words.push_back("-I" + directory);
      if (!p.define.empty()) words.push_back(p.define);
      words.push_back(root + "/benchmarks/compile_time/" + p.file);
      const cost c = run(words);
      ok = ok && c.ok;
      std::printf("%-34s %10.1f %10.0f%s\n", p.name.c_str(), c.seconds, c.mebibytes,
                  c.ok ? "" : "  failed");
      std::fflush(stdout);
    }
  }
  return ok ? 0 : 1;
}
