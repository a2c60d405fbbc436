#pragma once

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/mpi/mpi_error.hpp"
#include "ikebana/replicate/mpi/mpi_notice.hpp"
#include "ikebana/replicate/mpi/process_place.hpp"

namespace ikebana::detail {

inline std::atomic<int> mpi_signal{0};

/// This process as a rank of MPI_COMM_WORLD: starts MPI, ends it when the program ends, and knows
/// what became of the other ranks.
///
/// Three ways lead to that knowledge. A rank that fails or leaves sends a notice; one that dies
/// without a word is missed by its process id, if it ran on the same machine; and mpirun, which
/// ends the whole job when a rank dies anywhere, says so by SIGTERM (Open MPI: one second after
/// the death, and SIGKILL another second later; `--mca odls_base_sigkill_timeout` stretches both).
class mpi_process {
 public:
  using clock = std::chrono::steady_clock;

  static mpi_process& instance() {
    static mpi_process process;
    return process;
  }

  mpi_process(const mpi_process&) = delete;
  mpi_process& operator=(const mpi_process&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  void attach(mpi_listener* listener) { listeners_.push_back(listener); }
  void detach(mpi_listener* listener) noexcept { std::erase(listeners_, listener); }

  /// The first rank that failed with all its groups, and its words.
  const std::optional<mpi_notice>& failure() const { return failure_; }

  /// Takes in what has arrived.
  void poll() {
    for (int arrived = 1; listening_ && arrived != 0;) {
      check_mpi("MPI_Test", MPI_Test(&inbox_, &arrived, MPI_STATUS_IGNORE));
      if (arrived == 0) break;
      const mpi_notice notice = incoming_;
      listen();
      if (notice.group == 0) {
        // A rank that has left ended its program in good order, or at least its work.
        state& s = states_[static_cast<std::size_t>(notice.sender)];
        (notice.kind == mpi_notice_kind::left ? s.ended : s.failed) = true;
        if (notice.kind != mpi_notice_kind::left && !failure_) failure_ = notice;
      } else {
        for (mpi_listener* listener : listeners_) listener->hear(notice);
      }
    }
    std::erase_if(outbox_, [&](std::unique_ptr<letter>& l) { return has_arrived(l); });
  }

  /// Sends without waiting.
  void send(const mpi_notice& notice, std::span<const int> to) noexcept {
    auto l = std::make_unique<letter>();
    l->notice = notice;
    for (int r : to) {
      if (r == rank_) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      if (MPI_Isend(&l->notice, sizeof(mpi_notice), MPI_BYTE, r, 0, control_, &request) ==
          MPI_SUCCESS) {
        l->requests.push_back(request);
        l->to.push_back(r);
      }
    }
    outbox_.push_back(std::move(l));
  }

  mpi_notice notice_of(mpi_notice_kind kind, std::uint64_t group, const std::string& text) const {
    mpi_notice n;
    n.kind = kind;
    n.rank = n.sender = rank_;
    n.group = group;
    std::memcpy(n.text, text.data(), std::min(text.size(), sizeof(n.text) - 1));
    return n;
  }

  /// Among those who are left a failure is past.
  void forget_failure() { failure_.reset(); }
  /// Of all ranks; notices have the tag 0.
  MPI_Comm control() const { return control_; }

  /// Whether a rank has said that it failed with all its groups, or is gone.
  bool is_out(int rank) { return states_[static_cast<std::size_t>(rank)].failed || is_gone(rank); }

  /// Whether a rank has ended its program or its process is no more. Asks the system at most every
  /// few milliseconds.
  bool is_gone(int rank) { return states_[static_cast<std::size_t>(rank)].ended || is_dead(rank); }

  bool is_dead(int rank) {
    const clock::time_point now = clock::now();
    if (now - asked_ > std::chrono::milliseconds(5)) {
      asked_ = now;
      for (state& s : states_)
        s.dead = s.dead || (s.is_here && ::kill(s.pid, 0) != 0 && errno == ESRCH);
    }
    return states_[static_cast<std::size_t>(rank)].dead;
  }

  /// Tells every rank that this one has failed, with all its groups.
  void fail(const std::string& text) noexcept {
    if (std::exchange(told_, true)) return;
    // Where it follows from another's failure, that one's words are passed on.
    if (!failure_) failure_ = notice_of(mpi_notice_kind::thrown, 0, text);
    mpi_notice notice = *failure_;
    notice.sender = rank_;
    send(notice, everyone_);
  }

  /// Returns when every other rank has said that it has failed too or ended, so that none is ended
  /// by mpirun before it knows why; true if all have, and none has died. Waits at most `longest`,
  /// and only once.
  bool part(std::chrono::nanoseconds longest) noexcept {
    const clock::time_point start = clock::now();
    if (std::exchange(parted_, true)) longest = {};
    try {
      for (;;) {
        poll();
        bool all = outbox_.empty(), alive = mpi_signal.load() == 0;
        for (int r = 0; r < size_; ++r) {
          const bool dead = r != rank_ && is_dead(r);
          const state& s = states_[static_cast<std::size_t>(r)];
          alive = alive && (!dead || s.ended);
          all = all && (r == rank_ || s.failed || s.ended || dead);
        }
        if (all) return alive;
        if (clock::now() - start >= longest || mpi_signal.load() != 0) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    } catch (...) {
      return false;
    }
  }

  std::uint64_t next_world() { return ++worlds_; }
  /// The longest timeout of a group bounds the wait for others at the end.
  void wait_at_end(std::chrono::nanoseconds timeout) { patience_ = std::max(patience_, timeout); }

  /// Keeps memory that MPI may still write to.
  template <class T>
  void keep(T&& memory) {
    struct holder : kept {
      explicit holder(T&& m) : memory(std::move(m)) {}
      std::remove_reference_t<T> memory;
    };
    kept_.push_back(std::make_unique<holder>(std::move(memory)));
  }

 private:
  static constexpr std::chrono::nanoseconds most_after_failure = std::chrono::seconds{10};

  struct state {
    pid_t pid = 0;
    bool is_here = false;  // on this machine, among the processes that this one can see
    bool failed = false, ended = false, dead = false;
  };

  struct letter {
    mpi_notice notice;
    std::vector<MPI_Request> requests;
    std::vector<int> to;
  };

  /// Whether a letter is with all who live; one to the dead is kept for MPI, which may still hold
  /// it.
  bool has_arrived(std::unique_ptr<letter>& l) {
    bool lost = false;
    for (std::size_t i = 0; i < l->to.size(); ++i) {
      int done = 0;
      MPI_Test(&l->requests[i], &done, MPI_STATUS_IGNORE);
      if (done == 0 && !states_[static_cast<std::size_t>(l->to[i])].dead) return false;
      lost = lost || done == 0;
    }
    if (lost) keep(std::move(l));
    return true;
  }

  struct kept {
    virtual ~kept() = default;
  };

  mpi_process() {
    int flag = 0;
    MPI_Finalized(&flag);
    if (flag != 0) throw state_error("mpi_group: MPI has been finalized, and cannot start twice");
    MPI_Initialized(&flag);
    if (flag == 0) {
      int provided = 0;
      check_mpi("MPI_Init_thread",
                MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided));
      owns_ = true;
    }
    check_mpi("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &control_));
    MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(control_, &rank_);
    MPI_Comm_size(control_, &size_);

    struct address {
      std::int64_t pid;
      std::uint64_t place;
    };
    const address mine{::getpid(), process_place()};
    std::vector<address> all(static_cast<std::size_t>(size_));
    check_mpi("MPI_Allgather", MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(),
                                             sizeof(mine), MPI_BYTE, control_));
    states_.resize(all.size());
    for (std::size_t r = 0; r < all.size(); ++r) {
      states_[r].pid = static_cast<pid_t>(all[r].pid);
      states_[r].is_here = all[r].place == mine.place && static_cast<int>(r) != rank_;
      everyone_.push_back(static_cast<int>(r));
    }
    listen();

    // Only where nobody else has an answer to the signal. The second one ends the process.
    struct sigaction before;
    if (::sigaction(SIGTERM, nullptr, &before) == 0 && before.sa_handler == SIG_DFL) {
      struct sigaction once {};
      once.sa_handler = [](int s) { mpi_signal.store(s); };
      once.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
      ::sigaction(SIGTERM, &once, nullptr);
    }
  }

  ~mpi_process() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0) return;
    if (!told_) send(notice_of(mpi_notice_kind::left, 0, {}), everyone_);
    // Who waits in MPI_Finalize for ranks that are no more waits for ever.
    const bool orderly = part(failure_ ? std::min(patience_, most_after_failure) : patience_);
    if (!orderly) return;
    MPI_Cancel(&inbox_);
    MPI_Wait(&inbox_, MPI_STATUS_IGNORE);
    MPI_Comm_free(&control_);
    if (owns_) MPI_Finalize();
  }

  void listen() {
    check_mpi("MPI_Irecv", MPI_Irecv(&incoming_, sizeof(incoming_), MPI_BYTE, MPI_ANY_SOURCE, 0,
                                     control_, &inbox_));
    listening_ = true;
  }

  int rank_ = 0, size_ = 1;
  bool owns_ = false, listening_ = false, told_ = false, parted_ = false;
  MPI_Comm control_ = MPI_COMM_NULL;
  MPI_Request inbox_ = MPI_REQUEST_NULL;
  mpi_notice incoming_{};
  std::optional<mpi_notice> failure_;
  std::vector<state> states_;
  std::vector<int> everyone_;
  std::vector<mpi_listener*> listeners_;
  std::vector<std::unique_ptr<letter>> outbox_;
  std::vector<std::unique_ptr<kept>> kept_;
  clock::time_point asked_{};
  std::chrono::nanoseconds patience_{std::chrono::seconds{10}};
  std::uint64_t worlds_ = 0;
};

}  // namespace ikebana::detail
