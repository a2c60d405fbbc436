// Training on two ranks compared with PyTorch's DistributedDataParallel on the same networks, and
// all-reduce compared with Open MPI's, in one run in which contestants take turns in random order.
// One thread per rank, each pinned to its own processor if there are enough.
//
//     tools/bazel run -c opt //benchmarks:replicate -- [--benchmark_filter=step/mlp]
//
// A contestant that is not installed (python3 with torch, mpirun) is left out, and a line says so.

#include "ikebana/replicate/replicate.hpp"

#include <benchmark/benchmark.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/replicate_peers.hpp"
#include "benchmarks/replicate_table.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/pool.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/mpi_group.hpp"

namespace ike = ikebana;
using namespace ike::literals;

namespace {

constexpr double budget = 0.2;  // Seconds of one measurement.

constexpr auto mlp = ike::sequential(
    "fc1"_m = ike::lazy_linear<512>{}, ike::relu{}, "fc2"_m = ike::lazy_linear<512>{}, ike::relu{},
    "fc3"_m = ike::lazy_linear<512>{}, ike::relu{}, "fc4"_m = ike::lazy_linear<10>{});
constexpr auto lenet = ike::sequential(
    "conv1"_m = ike::lazy_conv2d<6, ike::kernel<5>, ike::padding<2>>{}, ike::relu{},
    ike::max_pool2d<ike::kernel<2>>{}, "conv2"_m = ike::lazy_conv2d<16, ike::kernel<5>>{},
    ike::relu{}, ike::max_pool2d<ike::kernel<2>>{}, ike::flatten{},
    "fc1"_m = ike::lazy_linear<120>{}, ike::relu{}, "fc2"_m = ike::lazy_linear<84>{}, ike::relu{},
    "fc3"_m = ike::lazy_linear<10>{});

using overlapped = ike::replicate_policy<>;
// One bucket, reduced after backward.
using at_the_end = ike::replicate_policy<ike::bucket_cap<ike::MiB(1024)>>;
using compressed = ike::replicate_policy<ike::comm_hook<ike::bf16_compress>>;

/// Binds the calling thread to the rank-th of its processors during its lifetime.
class pinned {
 public:
  explicit pinned(int rank) {
    CPU_ZERO(&before_);
    sched_getaffinity(0, sizeof before_, &before_);
    if (CPU_COUNT(&before_) < 2) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &before_) && rank-- == 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
      }
  }
  pinned(const pinned&) = delete;
  ~pinned() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

/// A group that counts the bytes that its rank would send in a ring: for all-reduces, twice (n - 1)
/// / n of their size.
template <ike::process_group G>
class counting {
 public:
  explicit counting(G& group) : group_{group} {}
  double sent = 0;

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  template <class T>
  auto all_reduce_async(std::span<T> x, ike::reduce_op op) {
    count(2, x.size_bytes());
    return group_.all_reduce_async(x, op);
  }
  template <class T>
  auto broadcast_async(std::span<T> x, int root) {
    count(1, x.size_bytes());
    return group_.broadcast_async(x, root);
  }
  template <class T>
  auto all_gather_async(std::span<const T> mine, std::span<T> all) {
    count(1, all.size_bytes());
    return group_.all_gather_async(mine, all);
  }
  template <class T>
  auto reduce_scatter_async(std::span<const T> all, std::span<T> mine, ike::reduce_op op) {
    count(1, all.size_bytes());
    return group_.reduce_scatter_async(all, mine, op);
  }
  auto barrier_async() { return group_.barrier_async(); }
  template <class T>
  void all_reduce(std::span<T> x, ike::reduce_op op) {
    all_reduce_async(x, op).wait();
  }
  template <class T>
  void broadcast(std::span<T> x, int root) {
    broadcast_async(x, root).wait();
  }
  template <class T>
  void all_gather(std::span<const T> mine, std::span<T> all) {
    all_gather_async(mine, all).wait();
  }
  template <class T>
  void reduce_scatter(std::span<const T> all, std::span<T> mine, ike::reduce_op op) {
    reduce_scatter_async(all, mine, op).wait();
  }
  void barrier() { barrier_async().wait(); }

 private:
  void count(double times, std::size_t bytes) {
    sent += times * (size() - 1) / size() * static_cast<double>(bytes);
  }
  G& group_;
};

/// Seconds per call of f, the median of as many as fit the time budget of rank 0: all ranks make
/// equally many. `agree(count)` gives all ranks the count of rank 0 and lets them start together.
double seconds_of(auto f, auto agree) {
  using clock = std::chrono::steady_clock;
  const auto timed = [&](std::int64_t count) {
    std::vector<double> each(static_cast<std::size_t>(count));
    auto begin = clock::now();
    for (double& seconds : each) {
      f();
      const auto end = clock::now();
      seconds = std::chrono::duration<double>(end - begin).count();
      begin = end;
    }
    std::nth_element(each.begin(), each.begin() + count / 2, each.end());
    return each[each.size() / 2];
  };
  f();
  const double first = timed(agree(3));
  return timed(agree(std::clamp<std::int64_t>(static_cast<std::int64_t>(budget / first), 3, 5000)));
}

auto agreement(ike::process_group auto& group) {
  return [&group](std::int64_t count) {
    group.broadcast(std::span{&count, 1}, 0);
    group.barrier();
    return count;
  };
}

template <ike::shape In, class Policy, class Net, ike::process_group Group>
measured step_on(Group& inner, const Net& net) {
  const pinned here(inner.rank());
  counting group(inner);
  auto model = ike::replicate<Policy>(ike::initialize<float, In>(net, ike::seed{1}), group);
  ike::sgd optimizer{model, {.lr = 0.01, .momentum = 0.9}};
  const auto x = ike::uniform<float, In>(ike::seed{2 + static_cast<std::uint64_t>(inner.rank())});
  auto t = ike::zeros<std::int64_t, ike::shape{In.front()}>();
  for (ike::dim_t i = 0; i < t.size(); ++i) t[i] = i % 10;
  const auto step = [&] { model.train_step(x, t, ike::cross_entropy{}, optimizer); };
  step();
  group.sent = 0;
  step();
  const double sent = group.sent;
  return {seconds_of(step, agreement(inner)), sent};
}

template <class Policy>
measured step_on(ike::process_group auto& group, std::string_view network) {
  if (network == "mlp") return step_on<ike::shape{32, 784}, Policy>(group, mlp);
  return step_on<ike::shape{32, 1, 28, 28}, Policy>(group, lenet);
}

template <class Policy>
measured step_on_threads(int ranks, std::string_view network) {
  return ike::launch(ike::threads{ranks}, [&](ike::process_group auto& group) {
    return step_on<Policy>(group, network);
  })[0];
}

measured all_reduce_on(ike::process_group auto& group, std::size_t bytes) {
  const pinned here(group.rank());
  std::vector<float> data(bytes / sizeof(float));
  return {
      seconds_of([&] { group.all_reduce(std::span{data}, ike::reduce_op::sum); }, agreement(group)),
      0};
}

/// Open MPI's own all-reduce.
measured mpi_all_reduce(std::size_t bytes) {
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  measured result;
  {
    const pinned here(rank);
    std::vector<float> data(bytes / sizeof(float));
    const auto agree = [](std::int64_t count) {
      MPI_Bcast(&count, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
      MPI_Barrier(MPI_COMM_WORLD);
      return count;
    };
    result.seconds = seconds_of(
        [&] {
          MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT,
                        MPI_SUM, MPI_COMM_WORLD);
        },
        agree);
  }
  MPI_Finalize();
  return result;
}

/// The work of a rank started by mpirun.
int run_as_rank(std::span<char*> words) {
  const std::string what = words[0], how = words[1], of = words[2];
  measured result;
  const int rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
  if (what == "all_reduce" && how == "open_mpi") {
    result = mpi_all_reduce(std::stoul(of));
  } else {
    auto group = ike::mpi_group::world();
    if (what == "all_reduce")
      result = all_reduce_on(group, std::stoul(of));
    else
      result = how == "overlap" ? step_on<overlapped>(group, of) : step_on<at_the_end>(group, of);
  }
  if (rank == 0) std::printf("%.9f %.0f\n", result.seconds, result.sent);
  return 0;
}

void add(const std::string& name, std::function<measured()> measure) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [measure](benchmark::State& state) {
                                 for (auto _ : state) try {
                                     const measured m = measure();
                                     state.SetIterationTime(m.seconds);
                                     state.counters["sent"] = m.sent;
                                   } catch (const std::exception& e) {
                                     state.SkipWithError(e.what());
                                     break;
                                   }
                               })
      ->UseManualTime()
      ->Iterations(1);
}

void add_steps(const std::string& network, pytorch& peer, bool with_mpi) {
  const std::string prefix = "step/" + network + "/";
  add(prefix + "Ikebana 1 rank", [=] { return step_on_threads<overlapped>(1, network); });
  add(prefix + "Ikebana threads{2}", [=] { return step_on_threads<overlapped>(2, network); });
  add(prefix + "Ikebana threads{2} no overlap",
      [=] { return step_on_threads<at_the_end>(2, network); });
  add(prefix + "Ikebana threads{2} bf16", [=] { return step_on_threads<compressed>(2, network); });
  if (with_mpi) {
    add(prefix + "Ikebana MPI 2", [=] { return on_mpi("step overlap " + network); });
    add(prefix + "Ikebana MPI 2 no overlap", [=] { return on_mpi("step none " + network); });
  }
  if (!peer.is_there()) return;
  add(prefix + "PyTorch 1 process",
      [=, &peer] { return peer.ask("step " + network + " 1 0", budget); });
  add(prefix + "PyTorch DDP 2",
      [=, &peer] { return peer.ask("step " + network + " 2 1", budget); });
  add(prefix + "PyTorch DDP 2 no overlap",
      [=, &peer] { return peer.ask("step " + network + " 2 0", budget); });
}

void add_all_reduces(pytorch& peer, bool with_mpi) {
  for (std::size_t bytes = 4096; bytes <= 64u << 20; bytes *= 4) {
    const std::string size = std::to_string(bytes), prefix = "all_reduce/" + size + "/";
    add(prefix + "thread_group", [=] {
      return ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
        return all_reduce_on(group, bytes);
      })[0];
    });
    if (with_mpi) {
      add(prefix + "mpi_group", [=] { return on_mpi("all_reduce mpi_group " + size); });
      add(prefix + "MPI_Allreduce", [=] { return on_mpi("all_reduce open_mpi " + size); });
    }
    if (peer.is_there())
      add(prefix + "gloo", [=, &peer] { return peer.ask("all_reduce " + size, budget); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && std::string_view{argv[1]} == "--rank")
    return run_as_rank(std::span{argv, 5}.subspan(2));

  // The user's options come last and take precedence.
  std::vector<char*> arguments{argv[0]};
  std::string repetitions = "--benchmark_repetitions=5",
              interleave = "--benchmark_enable_random_interleaving=true";
  arguments.push_back(repetitions.data());
  arguments.push_back(interleave.data());
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;

  std::signal(SIGPIPE, SIG_IGN);  // In case PyTorch ends first.
  pytorch peer;
  if (peer.is_there())
    std::printf("%s\n", peer.version().c_str());
  else
    std::printf("PyTorch is left out: %s\n", peer.missing().c_str());
  const bool with_mpi = has_mpirun();
  if (!with_mpi) std::printf("MPI is left out: there is no mpirun\n");
  for (const char* network : {"mlp", "lenet"}) add_steps(network, peer, with_mpi);
  add_all_reduces(peer, with_mpi);

  table_reporter table;
  benchmark::RunSpecifiedBenchmarks(&table);
  table.print();
  return 0;
}
