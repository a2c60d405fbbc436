// failing_rank HOW: the last rank ends in the way that HOW says; the others say what they caught.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "ikebana/replicate/mpi_group.hpp"

namespace ike = ikebana;

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  // Only a rank that is alive and does nothing is found out by the clock.
  const auto timeout = std::chrono::seconds(how == "hang" ? 2 : 200);
  try {
    ike::launch(ike::mpi_ranks{timeout, std::chrono::seconds(2)},
                [&](ike::process_group auto& group) {
                  std::vector<float> x(100000, 1.0f), y(1000, 1.0f);
                  for (int step = 0; step < 100; ++step) {
                    const bool now = step == 5 && group.rank() == group.size() - 1;
                    if (now && how == "kill") ::kill(::getpid(), SIGKILL);
                    if (now && how == "throw") throw std::runtime_error("out of apples");
                    if (now && how == "exit") std::exit(0);
                    if (now && how == "return") return;
                    if (now && how == "hang")
                      for (;;) ::pause();
                    auto first = group.all_reduce_async(std::span<float>(x), ike::reduce_op::avg);
                    auto second = group.all_reduce_async(std::span<float>(y), ike::reduce_op::avg);
                    if (now && how == "kill_amid") ::kill(::getpid(), SIGKILL);
                    if (now && how == "throw_amid") throw std::runtime_error("out of apples");
                    first.wait();
                    second.wait();
                  }
                });
  } catch (const ike::communication_error& e) {
    // One write each, so that the lines of two ranks do not mix.
    const std::string line = std::string("caught ") + e.what() + "\n";
    return ::write(STDOUT_FILENO, line.data(), line.size()) < 0 ? 2 : 3;
  } catch (const std::exception& e) {
    const std::string line = std::string("threw ") + e.what() + "\n";
    return ::write(STDOUT_FILENO, line.data(), line.size()) < 0 ? 2 : 3;
  }
}
