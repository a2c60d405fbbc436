#pragma once

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
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
#include "ikebana/replicate/request.hpp"

namespace ikebana::detail {

inline std::atomic<int> mpi_signal{0};

/// Calls an MPI function that waits for other ranks and has no non-blocking form on a separate
/// thread, so that the caller can stop waiting for it.
class mpi_blocking_call {
 public:
  template <class F>
  explicit mpi_blocking_call(F f) {
    std::thread([f = std::move(f), done = done_] {
      f();
      done->store(true);
    }).detach();
  }
  bool is_done() const { return done_->load(); }

 private:
  std::shared_ptr<std::atomic<bool>> done_ = std::make_shared<std::atomic<bool>>(false);
};

/// This process as a rank of MPI_COMM_WORLD: starts MPI, ends it when the program ends, and knows
/// the state of the other ranks.
///
/// All groups share one communicator. Each group has a slot, which is a range of tags; its ranks
/// agree on the slot by an all_reduce of the parent group. The MPI functions that make
/// communicators are not used because they wait without a timeout.
///
/// It learns of failures in three ways. A rank that fails or leaves sends a notice. One that dies
/// silently is detected by its process id, if it ran on the same machine. And mpirun, which ends
/// the whole job when a rank dies anywhere, sends SIGTERM (Open MPI: one second after the death,
/// and SIGKILL another second later; `--mca odls_base_sigkill_timeout` stretches both).
class mpi_process {
 public:
  using clock = std::chrono::steady_clock;

  /// Tags per slot; no collective uses the last one.
  static constexpr int tags = 256;

  static mpi_process& instance() {
    static mpi_process process;
    return process;
  }

  /// Starts MPI, unless it has started, and exchanges addresses with the other ranks. Throws
  /// communication_error if they do not arrive before the deadline; a later call resumes the wait.
  void start(clock::time_point deadline) {
    switch (stage_) {
      case stage::none:
        listen_for_the_launcher();
        initialise();
        stage_ = stage::initialising;
        [[fallthrough]];
      case stage::initialising:
        await(deadline, [&] { return !initialisation_ || initialisation_->is_done(); });
        if (initialisation_ && *provided_ < MPI_THREAD_SERIALIZED)
          throw communication_error("mpi_group: MPI does not offer MPI_THREAD_SERIALIZED");
        check_mpi("MPI_Comm_idup", MPI_Comm_idup(MPI_COMM_WORLD, &control_, &starting_));
        stage_ = stage::duplicating;
        [[fallthrough]];
      case stage::duplicating:
        await(deadline, [&] { return is_complete(starting_); });
        MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
        MPI_Comm_rank(control_, &rank_);
        MPI_Comm_size(control_, &size_);
        mine_ = {::getpid(), process_place()};
        addresses_.resize(static_cast<std::size_t>(size_));
        check_mpi("MPI_Iallgather",
                  MPI_Iallgather(&mine_, sizeof(mine_), MPI_BYTE, addresses_.data(), sizeof(mine_),
                                 MPI_BYTE, control_, &starting_));
        stage_ = stage::gathering;
        [[fallthrough]];
      case stage::gathering:
        await(deadline, [&] { return is_complete(starting_); });
        states_.resize(addresses_.size());
        for (std::size_t r = 0; r < addresses_.size(); ++r) {
          states_[r].pid = static_cast<pid_t>(addresses_[r].pid);
          states_[r].is_here = addresses_[r].place == mine_.place && static_cast<int>(r) != rank_;
        }
        everyone_.resize(states_.size());
        std::iota(everyone_.begin(), everyone_.end(), 0);
        prepare_slots();
        listen();
        stage_ = stage::started;
        [[fallthrough]];
      case stage::started:
        break;
    }
  }

  mpi_process(const mpi_process&) = delete;
  mpi_process& operator=(const mpi_process&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  const std::vector<int>& everyone() const { return everyone_; }

  void attach(mpi_listener* listener) {
    listeners_.push_back(listener);
    // Notices that arrived before this rank made the group.
    std::erase_if(unhandled_, [&](const mpi_notice& n) { return listener->handle(n); });
  }
  void detach(mpi_listener* listener) noexcept { std::erase(listeners_, listener); }

  /// Bit s is set if this rank uses slot s.
  const std::vector<std::uint64_t>& used_slots() const { return used_; }
  /// Takes the first slot that is free in `used`, the union over several ranks; -1 if there is
  /// none.
  int take_slot(std::span<const std::uint64_t> used) {
    for (std::size_t w = 0; w < used.size(); ++w) {
      const int bit = std::countr_one(used[w]);
      if (bit == 64) continue;
      used_[w] |= std::uint64_t{1} << bit;
      return static_cast<int>(64 * w) + bit;
    }
    return -1;
  }
  /// Requires that the group has no messages in flight on this rank.
  void free_slot(int slot) noexcept {
    used_[static_cast<std::size_t>(slot / 64)] &= ~(std::uint64_t{1} << slot % 64);
  }
  static int first_tag(int slot) { return 1 + slot * tags; }

  /// The first rank that failed with all its groups, and its message.
  const std::optional<mpi_notice>& failure() const { return failure_; }

  /// Processes what has arrived.
  void poll() {
    for (int arrived = 1; listening_ && arrived != 0;) {
      check_mpi("MPI_Test", MPI_Test(&inbox_, &arrived, MPI_STATUS_IGNORE));
      if (arrived == 0) break;
      const mpi_notice notice = incoming_;
      listen();
      if (notice.group == 0) {
        // A rank that has left ended its program, or at least its work, in good order.
        state& s = states_[static_cast<std::size_t>(notice.sender)];
        (notice.kind == mpi_notice_kind::left ? s.ended : s.failed) = true;
        if (notice.kind != mpi_notice_kind::left && !failure_) failure_ = notice;
      } else {
        bool handled = false;
        for (mpi_listener* listener : listeners_) handled = listener->handle(notice) || handled;
        if (!handled) {
          if (unhandled_.size() == most_unhandled) unhandled_.erase(unhandled_.begin());
          unhandled_.push_back(notice);
        }
      }
      timed_out_ = timed_out_ || notice.kind == mpi_notice_kind::timed_out;
    }
    std::erase_if(outbox_, [&](std::unique_ptr<sent_notice>& l) { return has_arrived(l); });
  }

  /// Sends without waiting.
  void send(const mpi_notice& notice, std::span<const int> to) noexcept {
    auto l = std::make_unique<sent_notice>();
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

  /// Among the survivors, a failure is over.
  void forget_failure() {
    failure_.reset();
    timed_out_ = false;
  }
  /// A group of this rank has failed. If it timed out, the process does not wait for other ranks at
  /// its end.
  void note_failure(mpi_notice_kind kind) noexcept {
    failed_ = true;
    timed_out_ = timed_out_ || kind == mpi_notice_kind::timed_out;
  }
  /// A communicator of all ranks; notices have the tag 0.
  MPI_Comm control() const { return control_; }

  /// Whether a rank has reported a failure of all its groups, or is gone.
  bool is_out(int rank) { return states_[static_cast<std::size_t>(rank)].failed || is_gone(rank); }

  /// Whether a rank has ended its program or its process is dead. Asks the system at most every few
  /// milliseconds.
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

  /// A collective has completed, so an earlier failure was that of a group, not of the job.
  void note_success() noexcept { failed_ = timed_out_ = false; }

  /// Tells every rank that this one has failed, with all its groups.
  void fail(const std::string& text) noexcept {
    if (std::exchange(told_, true)) return;
    failed_ = true;
    // If it follows from another's failure, that rank's message is passed on.
    if (!failure_)
      failure_ =
          notice_of(timed_out_ ? mpi_notice_kind::timed_out : mpi_notice_kind::thrown, 0, text);
    mpi_notice notice = *failure_;
    notice.sender = rank_;
    send(notice, everyone_);
  }

  /// Returns when every other rank has reported that it has failed too or ended, so that mpirun
  /// ends none before it knows why; true if all have and none has died. Waits at most `longest`,
  /// and only once; after a failure at most the longest timeout of a group, and half a second if a
  /// rank has already waited for a whole timeout.
  bool part(std::chrono::nanoseconds longest) noexcept {
    if (stage_ != stage::started) return false;
    const clock::time_point start = clock::now();
    if (failed_) longest = std::min(longest, longest_timeout_);
    if (timed_out_) longest = std::min(longest, after_timeout);
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

  /// The number of a new group of all ranks. Throws communication_error if an earlier attempt to
  /// make one has failed, since its messages may still be in flight.
  std::uint64_t begin_world() {
    if (worlds_begun_ != worlds_made_)
      throw communication_error(rank_text(rank_) +
                                ": mpi_group::world: an earlier call of it has failed");
    return ++worlds_begun_;
  }
  void end_world() { ++worlds_made_; }

  /// The longest timeout of a group bounds the wait for others at the end.
  void wait_at_end(std::chrono::nanoseconds timeout) {
    longest_timeout_ = std::max(longest_timeout_, timeout);
  }

  /// Keeps memory alive that MPI may still write to.
  template <class T>
  void keep(T&& memory) {
    struct holder : kept {
      explicit holder(T&& m) : memory(std::move(m)) {}
      std::remove_reference_t<T> memory;
    };
    kept_.push_back(std::make_unique<holder>(std::move(memory)));
  }

 private:
  enum class stage { none, initialising, duplicating, gathering, started };

  static constexpr std::chrono::nanoseconds least_at_end = std::chrono::seconds{10};
  static constexpr std::chrono::nanoseconds after_timeout = std::chrono::milliseconds{500};
  static constexpr int most_slots = 4096;
  static constexpr std::size_t most_unhandled = 256;

  struct address {
    std::int64_t pid = 0;
    std::uint64_t place = 0;
  };

  struct state {
    pid_t pid = 0;
    bool is_here = false;  // On this machine and visible to this process.
    bool failed = false, ended = false, dead = false;
  };

  struct sent_notice {
    mpi_notice notice;
    std::vector<MPI_Request> requests;
    std::vector<int> to;
  };

  /// Whether a notice has reached all living ranks. One to a dead rank is kept for MPI, which
  /// may still use it.
  bool has_arrived(std::unique_ptr<sent_notice>& l) {
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
    // For the texts of errors that occur before MPI has started.
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
      if (const char* text = std::getenv(name)) {
        rank_ = std::atoi(text);
        break;
      }
  }

  ~mpi_process() {
    int finalized = 0;
    if (stage_ != stage::started || MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0)
      return;
    if (!told_) send(notice_of(mpi_notice_kind::left, 0, {}), everyone_);
    // MPI_Finalize would wait forever for dead ranks.
    const auto longest = failed_ ? least_at_end : std::max(longest_timeout_, least_at_end);
    if (!part(longest)) return;
    MPI_Cancel(&inbox_);
    MPI_Wait(&inbox_, MPI_STATUS_IGNORE);
    MPI_Comm_free(&control_);
    if (!initialisation_) return;
    const mpi_blocking_call end([] { MPI_Finalize(); });
    const clock::time_point deadline = clock::now() + longest;
    while (!end.is_done() && mpi_signal.load() == 0 && clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
  }

  void initialise() {
    int flag = 0;
    MPI_Finalized(&flag);
    if (flag != 0) throw state_error("mpi_group: MPI has been finalized, and cannot start twice");
    MPI_Initialized(&flag);
    if (flag != 0) return;
    initialisation_.emplace([provided = provided_] {
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, provided.get());
    });
  }

  static bool is_complete(MPI_Request& request) {
    int done = 0;
    check_mpi("MPI_Test", MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    return done != 0;
  }

  /// Waits until one step of the start is complete. Throws communication_error at the deadline or
  /// if the launcher ends the job.
  template <class Done>
  void await(clock::time_point deadline, Done done) {
    const clock::time_point begin = clock::now();
    while (!done()) {
      const auto waited = [&] {
        return " (waited " +
               seconds_text(std::chrono::duration<double>(clock::now() - begin).count()) + ")";
      };
      if (mpi_signal.load() != 0)
        throw communication_error(rank_text(rank_) +
                                  ": start of MPI: the launcher ends the job, as it does when a "
                                  "rank dies" +
                                  waited());
      if (clock::now() >= deadline)
        throw communication_error(rank_text(rank_) +
                                  ": start of MPI: not every rank has come to mpi_group::world" +
                                  waited());
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  void prepare_slots() {
    int* bound = nullptr;
    int has_bound = 0;
    MPI_Comm_get_attr(control_, MPI_TAG_UB, &bound, &has_bound);
    const int last_tag = has_bound != 0 ? *bound : 32767;
    used_.assign(most_slots / 64, 0);
    for (int s = 0; s < most_slots; ++s)
      if (s > (last_tag - tags) / tags)
        used_[static_cast<std::size_t>(s / 64)] |= std::uint64_t{1} << s % 64;
    used_[0] |= 1;  // For the collectives that number groups of all ranks.
  }

  /// Listens only if the signal has no other handler. The second signal ends the process.
  static void listen_for_the_launcher() {
    struct sigaction before;
    if (::sigaction(SIGTERM, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
    struct sigaction once {};
    once.sa_handler = [](int s) { mpi_signal.store(s); };
    once.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    ::sigaction(SIGTERM, &once, nullptr);
  }

  void listen() {
    check_mpi("MPI_Irecv", MPI_Irecv(&incoming_, sizeof(incoming_), MPI_BYTE, MPI_ANY_SOURCE, 0,
                                     control_, &inbox_));
    listening_ = true;
  }

  stage stage_ = stage::none;
  std::optional<mpi_blocking_call> initialisation_;  // Empty if the program has started MPI.
  std::shared_ptr<int> provided_ = std::make_shared<int>(0);
  MPI_Request starting_ = MPI_REQUEST_NULL;
  address mine_{};
  std::vector<address> addresses_;

  int rank_ = 0, size_ = 1;
  bool listening_ = false, told_ = false, parted_ = false;
  bool failed_ = false, timed_out_ = false;
  MPI_Comm control_ = MPI_COMM_NULL;
  MPI_Request inbox_ = MPI_REQUEST_NULL;
  mpi_notice incoming_{};
  std::optional<mpi_notice> failure_;
  std::vector<state> states_;
  std::vector<int> everyone_;
  std::vector<mpi_listener*> listeners_;
  std::vector<mpi_notice> unhandled_;  // Of groups that this rank has not made yet.
  std::vector<std::uint64_t> used_;
  std::vector<std::unique_ptr<sent_notice>> outbox_;
  std::vector<std::unique_ptr<kept>> kept_;
  clock::time_point asked_{};
  std::chrono::nanoseconds longest_timeout_{};
  std::uint64_t worlds_begun_ = 0, worlds_made_ = 0;
};

}  // namespace ikebana::detail
