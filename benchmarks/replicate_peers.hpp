#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include "benchmarks/replicate_table.hpp"

/// A measurement on two ranks of MPI, in separate processes.
inline measured on_mpi(const std::string& words) {
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0)
    throw std::runtime_error("/proc/self/exe cannot be read");
  // Containers often forbid processes to read each other's memory, which Open MPI tries to do.
  std::string command =
      "mpirun --oversubscribe --bind-to none --mca btl_vader_single_copy_mechanism none ";
  if (geteuid() == 0) command += "--allow-run-as-root ";
  command += "-np 2 '" + std::string(self.data()) + "' --rank " + words + " </dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> out(popen(command.c_str(), "r"), pclose);
  measured result;
  if (out == nullptr || std::fscanf(out.get(), "%lf %lf", &result.seconds, &result.sent) != 2)
    throw std::runtime_error("mpirun: no result of " + words);
  return result;
}

/// The process that runs benchmarks/replicate_ddp.py.
class pytorch {
 public:
  pytorch() {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) throw std::runtime_error("pipe");
    child_ = fork();
    if (child_ == 0) {
      dup2(to[0], 0);
      dup2(from[1], 1);
      for (const int end : {to[0], to[1], from[0], from[1]}) close(end);
      execl("/usr/bin/python3", "/usr/bin/python3", "benchmarks/replicate_ddp.py", nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = fdopen(to[1], "w");
    from_ = fdopen(from[0], "r");
    hello_ = line();
  }
  pytorch(const pytorch&) = delete;
  ~pytorch() {
    std::fclose(to_);
    std::fclose(from_);
    waitpid(child_, nullptr, 0);
  }

  bool is_there() const { return hello_.starts_with("ready: "); }
  std::string version() const { return hello_.substr(7); }
  std::string missing() const { return hello_.empty() ? "python3 did not start" : hello_; }

  measured ask(const std::string& words, double budget) {
    std::fprintf(to_, "%s %f\n", words.c_str(), budget);
    std::fflush(to_);
    std::istringstream answer(line());
    measured result;
    if (!(answer >> result.seconds >> result.sent))
      throw std::runtime_error("PyTorch: no result of " + words);
    return result;
  }

 private:
  std::string line() {
    std::string text;
    for (int c = std::fgetc(from_); c != EOF && c != '\n'; c = std::fgetc(from_))
      text += static_cast<char>(c);
    return text;
  }

  pid_t child_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  std::string hello_;
};

inline bool has_mpirun() { return std::system("mpirun --version >/dev/null 2>&1") == 0; }
