// starting_rank WHEN SIGNAL DELAY FOLDER: the last rank sends itself SIGNAL (9 kills it, 19 stops
// it) DELAY microseconds after an event. WHEN is the event: `start`, its start; `world` or `split`,
// the first of its repeated calls of that function. With `late` it sends no signal, but starts
// after DELAY microseconds. The other ranks write to FOLDER what they caught, and the time since
// their last success.
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>

#include "ikebana/replicate/mpi_group.hpp"

namespace ike = ikebana;

namespace {

using clock = std::chrono::steady_clock;
constexpr auto timeout = std::chrono::seconds(2);

int signal_to_send = 0;
auto since = clock::now();
std::string file;

/// Written to a file, because mpirun may no longer forward the output.
void say(const std::string& text) {
  const double passed = std::chrono::duration<double>(clock::now() - since).count();
  std::ofstream(file, std::ios::app) << passed << " s: " << text << '\n';
}

/// Writes when the process ends.
struct at_end {
  ~at_end() {
    if (!file.empty()) say("end");
  }
};

/// Makes the process send itself the signal after this number of microseconds.
void send_later(long microseconds) {
  ::signal(SIGALRM, [](int) { ::kill(::getpid(), signal_to_send); });
  itimerval soon{};
  soon.it_value.tv_sec = microseconds / 1000000;
  soon.it_value.tv_usec = microseconds % 1000000 + 1;
  ::setitimer(ITIMER_REAL, &soon, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string_view when = argv[1];
  signal_to_send = std::atoi(argv[2]);
  const long delay = std::atol(argv[3]);
  const int rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
  const bool is_victim = rank + 1 == std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE"));
  file = std::string(argv[4]) + "/" + std::to_string(rank);
  static const at_end says_so;  // Before the library's own statics, and so destroyed after them.
  std::ofstream(file) << ::getpid() << '\n';
  since = clock::now();
  try {
    if (is_victim && when == "late") ::usleep(static_cast<useconds_t>(delay));
    if (is_victim && when == "start") send_later(delay);
    // If the start is not what is tested, it may take longer on a slow machine.
    ike::mpi_group group = ike::mpi_group::world(
        when == "world" || when == "split" ? std::chrono::seconds(60) : timeout);
    since = clock::now();
    ike::mpi_group world = ike::mpi_group::world(timeout);
    if (is_victim && (when == "world" || when == "split")) send_later(delay);
    for (;;) {
      since = clock::now();
      if (when == "split")
        static_cast<void>(world.split(world.rank() % 2, 0));
      else
        static_cast<void>(ike::mpi_group::world(timeout));
    }
  } catch (const std::exception& e) {
    say(e.what());
  }
  return 3;
}
