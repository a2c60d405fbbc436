#include "ikebana/deploy/freeze.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <pthread.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/parallel.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/deploy/prepare_thread.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/precision.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/causal_conv1d.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/lstm.hpp"
#include "ikebana/nn/pool.hpp"
#include "ikebana/nn/softmax.hpp"
#include "ikebana/nn/transformer_encoder_layer.hpp"
#include "ikebana/nn/weight_norm.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "ikebana/ops/reduction.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/stack_of.hpp"

#if defined(__linux__)
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::shape;

namespace {

template <class A, class B>
bool same_bits(const A& a, const B& b) {
  return a.extents() == b.extents() &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof(*a.data())) ==
             0;
}
/// To rounding, if norms are folded into weights.
template <class A, class B>
bool same_numbers(const A& a, const B& b) {
  const double eps = sizeof(*a.data()) == 4 ? 1e-5 : 1e-14;
  bool same = a.extents() == b.extents();
  for (dim_t i = 0; same && i < a.size(); ++i)
    same = std::abs(static_cast<double>(a.data()[i]) - static_cast<double>(b.data()[i])) < eps;
  return same;
}

constexpr auto mlp =
    ike::sequential("fc1"_m = ike::lazy_linear<128>{}, ike::relu{}, ike::dropout{},
                    "fc2"_m = ike::lazy_linear<40>{}, ike::tanh{}, "fc3"_m = ike::lazy_linear<3>{});
constexpr auto images = ike::sequential(
    "conv1"_m = ike::lazy_conv2d<6, ike::kernel<3>, ike::padding<1>, ike::bias<false>>{},
    "bn1"_m = ike::lazy_batch_norm2d<>{}, ike::relu{},
    "block"_m = ike::residual(ike::lazy_conv2d<6, ike::kernel<3>, ike::padding<1>>{},
                              ike::lazy_batch_norm2d<>{}, ike::gelu{}),
    ike::max_pool2d<ike::kernel<2>>{}, ike::flatten{}, ike::dropout{.p = 0.3},
    "fc1"_m = ike::lazy_linear<16>{}, ike::sigmoid{}, "fc2"_m = ike::lazy_linear<3>{},
    ike::softmax<>{});
constexpr auto diamond = ike::graph([](auto x) {
  auto a = "a"_m(ike::lazy_linear<9>{}, x);
  auto b = "b"_m(ike::lazy_linear<9>{}, ike::relu{}(a));
  auto c = "c"_m(ike::lazy_linear<9>{}, ike::tanh{}(b));
  return ike::relu{}(a + c) * b;
});

/// Trains a model a little, so that its buffers are not those of the beginning, then compares.
template <class T, shape In, bool Folds = false, class Net>
void compare(const Net& net, std::initializer_list<dim_t> batches) {
  auto model = ike::initialize<T, In>(net, ike::seed{1});
  using number = ike::element_of<T>;
  const auto x = [](dim_t n) { return ike::uniform<number, In>(ike::seed{5}, n); };
  for (dim_t n : batches) model(x(n + 2));
  const auto frozen = ike::freeze(model);
  auto lane = frozen.lane();
  for (dim_t n : batches) {
    INFO("batch " << n);
    model.eval();
    const auto input = x(n);
    const auto expected = model(input);
    const auto y = frozen(lane, input);
    CHECK((Folds ? same_numbers(y, expected) : same_bits(y, expected)));
    auto other = frozen.lane(shape{input.extents()});
    CHECK(same_bits(frozen(other, input), y));
    CHECK(other.workspace_bytes() <= model.workspace_bytes());
  }
}

}  // namespace

TEST_CASE_TEMPLATE("a frozen network gives the bits of the model in evaluation, in less memory", T,
                   float, double) {
  compare<T, shape{ike::dynamic, 20}>(mlp, {1, 7, 0, 33, 2});
  compare<T, shape{ike::dynamic, 1, 8, 8}, true>(images, {3, 1, 0, 9});
  compare<T, shape{ike::dynamic, 9}>(diamond, {2, 5});
  compare<T, shape{ike::dynamic, 5, 8}, true>(
      ike::sequential(ike::transformer_encoder_layer<8, 2, 16>{},
                      ike::weight_norm(ike::linear<8, 4>{})),
      {2, 3});
}

TEST_CASE("layers within a network, and networks without fusion, give the bits of the model") {
  constexpr auto net = ike::sequential(
      "conv"_m = ike::lazy_conv2d<4, ike::kernel<3>>{}, ike::flatten{},
      "fc1"_m = ike::lazy_linear<70>{}, ike::relu{}, "fc2"_m = ike::lazy_linear<40>{}, ike::gelu{},
      "fc3"_m = ike::lazy_linear<50>{}, "norm"_m = ike::softmax<>{});
  compare<float, shape{ike::dynamic, 1, 6, 6}>(net, {1, 4});
  auto model = ike::initialize<float, shape{2, 1, 6, 6}>(net, ike::seed{1});
  model.set_fusion(false);
  model.eval();
  const auto x = ike::uniform<float, shape{2, 1, 6, 6}>(ike::seed{2});
  const auto frozen = ike::freeze(model);
  auto lane = frozen.lane();
  CHECK(same_bits(frozen(lane, x), model(x)));
}

// Nothing is packed or transposed of these, so lanes have nothing to share.
TEST_CASE_TEMPLATE("layers whose weights are read as they stand give the bits of the model", T,
                   float, double) {
  compare<T, shape{ike::dynamic, 128}>(ike::lazy_linear<3>{}, {2, 1, 0, 9});
  compare<T, shape{ike::dynamic, 130}>(
      ike::sequential("fc1"_m = ike::lazy_linear<20>{}, ike::relu{}), {1, 3});
  compare<T, shape{ike::dynamic, 1025}>(ike::sequential("fc1"_m = ike::lazy_linear<1030>{}), {1});
}

// Weights that are spoiled afterwards are not read again. Kernels of less than AVX2 pack nothing.
TEST_CASE_TEMPLATE("the weights of layers in one call are packed once, for all lanes", T, float,
                   double) {
  if (ike::cpu::active_instruction_set() < ike::cpu::instruction_set::avx2) return;
  auto model = ike::initialize<T, shape{ike::dynamic, 40}>(
      ike::sequential("fc1"_m = ike::lazy_linear<50>{}, ike::relu{},
                      "fc2"_m = ike::lazy_linear<37>{}, ike::tanh{},
                      "fc3"_m = ike::lazy_linear<5>{}),
      ike::seed{1});
  model.eval();
  const auto frozen = ike::freeze(model);
  auto before = frozen.lane();
  for (const char* path : {"fc1.weight", "fc2.weight", "fc3.weight"}) {
    const auto& e = frozen.state().at(path);
    std::memset(const_cast<std::byte*>(e.bytes.data()), 0xFF, e.bytes.size());
  }
  auto after = frozen.lane();
  for (const dim_t n : {1, 2, 7, 33, 100}) {
    const auto x = ike::uniform<T, shape{ike::dynamic, 40}>(ike::seed{2}, n);
    INFO(n);
    CHECK(same_bits(frozen(before, x), model(x)));
    CHECK(same_bits(frozen(after, x), model(x)));
  }
}

TEST_CASE("models of bfloat16 products, with indices, several outputs and branches are frozen") {
  compare<ike::precision<ike::bf16>, shape{ike::dynamic, 20}>(mlp, {3, 1});

  constexpr auto words = ike::sequential(ike::embedding<10, 6>{}, ike::lazy_linear<4>{});
  auto of_words = ike::initialize<float, shape{ike::dynamic, 3}>(words, ike::seed{1});
  of_words.eval();
  const auto frozen_words = ike::freeze(of_words);
  auto lane = frozen_words.lane();
  ike::tensor<std::int64_t, shape{2, 3}> indices{};
  indices[4] = 9;
  CHECK(same_bits(frozen_words(lane, indices), of_words(indices)));
  indices[4] = 10;
  CHECK_THROWS_AS(frozen_words(lane, indices), ike::error);
  indices[4] = 3;
  CHECK(same_bits(frozen_words(lane, indices), of_words(indices)));

  constexpr auto heads =
      ike::parallel("a"_m = ike::linear<4, 2>{},
                    "b"_m = ike::choose("x"_m = ike::linear<4, 3>{}, "y"_m = ike::linear<4, 3>{}));
  auto branched = ike::initialize<float, shape{1, 4}>(heads, ike::seed{1});
  branched.eval();
  const auto x = ike::uniform<float, shape{1, 4}>(ike::seed{3});
  for (const std::size_t which : {std::size_t{1}, std::size_t{0}}) {
    branched.choose("b"_s, which);
    const auto frozen = ike::freeze(branched);
    auto of_heads = frozen.lane();
    const auto [a, b] = frozen(of_heads, x);
    const auto [c, d] = branched(x);
    CHECK(same_bits(a, c));
    CHECK(same_bits(b, d));
  }
}

TEST_CASE("eight threads call one network, and training the model changes nothing in it") {
  auto model = ike::initialize<float, shape{ike::dynamic, 20}>(mlp, ike::seed{1});
  auto optimizer = ike::sgd{model, {.lr = 0.1f}};
  model.eval();
  const auto x = ike::uniform<float, shape{ike::dynamic, 20}>(ike::seed{2}, 5);
  ike::tensor<float, shape{5, 3}> expected{};
  std::memcpy(expected.data(), model(x).data(), sizeof(float) * 15);
  const auto frozen = ike::freeze(model);
  const auto copy = frozen;
  std::vector<std::thread> threads;
  std::vector<int> wrong(8, 0);
  for (std::size_t i = 0; i < wrong.size(); ++i)
    threads.emplace_back([&, i] {
      auto lane = copy.lane();
      for (int k = 0; k < 200; ++k) {
        const auto y = copy(lane, x);
        wrong[i] += std::memcmp(y.data(), expected.data(), sizeof(float) * 15) != 0;
      }
    });
  model.train();
  for (int k = 0; k < 50; ++k)
    model.train_step(x, ike::zeros<float, shape{5, 3}>(), ike::mse_loss{}, optimizer);
  for (std::thread& t : threads) t.join();
  for (int w : wrong) CHECK(w == 0);
}

namespace {
constexpr auto stream = ike::sequential("lstm"_m = ike::lazy_lstm<16, ike::stateful<1>>{},
                                        "fc"_m = ike::lazy_linear<1>{});
constexpr shape step{1, 1, 3};
}  // namespace

TEST_CASE("a lane has the state of its stream, which reset returns to its beginning") {
  constexpr dim_t steps = 20;
  auto whole = ike::initialize<double, shape{steps, 1, 3}>(
      ike::sequential("lstm"_m = ike::lazy_lstm<16>{}, "fc"_m = ike::lazy_linear<1>{}),
      ike::seed{1});
  auto model = ike::initialize<double, step>(stream, ike::seed{1});
  whole.eval();
  model.eval();
  const auto x = ike::uniform<double, shape{steps, 1, 3}>(ike::seed{4});
  model(ike::uniform<double, step>(ike::seed{9}));  // Its state is not the lanes' business.
  const auto expected = whole(x);
  const auto frozen = ike::freeze(model);
  auto a = frozen.lane(), b = frozen.lane();
  const auto at = [&](dim_t i) { return ike::tensor_view<const double, step>(x.data() + 3 * i); };
  for (int round = 0; round < 2; ++round) {
    for (dim_t i = 0; i < steps; ++i) {
      CHECK(frozen(a, at(i)).data()[0] == doctest::Approx(expected.data()[i]).epsilon(1e-12));
      if (i % 3 == 0) frozen(b, at(0));
    }
    a.reset();
  }
}

TEST_CASE("a lane in the caller's memory allocates nothing and gives the same bits") {
  auto model = ike::initialize<float, step>(stream, ike::seed{1});
  model.eval();
  const auto frozen = ike::freeze(model);
  const auto x = ike::uniform<float, step>(ike::seed{4});
  auto own = frozen.lane();
  std::vector<std::byte> memory(frozen.lane_bytes() + 1);
  const long before = allocation_count_here;
  // Of any alignment.
  for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
    auto lane = frozen.lane(std::span(memory).subspan(offset));
    own.reset();
    for (int i = 0; i < 5; ++i) CHECK(same_bits(frozen(lane, x), frozen(own, x)));
  }
  CHECK(allocation_count_here == before);
  const std::span<std::byte> all(memory);
  for (std::size_t size = 0; size < memory.size() - 200; size += 1 + memory.size() / 50)
    CHECK_THROWS_AS(frozen.lane(all.first(size)), ike::error);
}

TEST_CASE("a lane made for the largest input allocates for no smaller one") {
  auto model = ike::initialize<float, shape{ike::dynamic, 1, 8, 8}>(images, ike::seed{1});
  const auto frozen = ike::freeze(model);
  auto lane = frozen.lane(shape{9, 1, 8, 8});
  const auto x = ike::uniform<float, shape{ike::dynamic, 1, 8, 8}>(ike::seed{2}, 9);
  ike::prepare_thread();
  const long before = allocation_count_here;
  for (const dim_t n : {9, 1, 0, 4, 9})
    frozen(lane, ike::tensor_view<const float, shape{ike::dynamic, 1, 8, 8}>(x.data(),
                                                                             shape{n, 1, 8, 8}));
  CHECK(allocation_count_here == before);
}

TEST_CASE("wrong shapes and lanes of other networks are refused, and nothing changes") {
  auto model = ike::initialize<float, shape{ike::dynamic, 20}>(mlp, ike::seed{1});
  model.eval();
  const auto frozen = ike::freeze(model), other = ike::freeze(model);
  auto lane = frozen.lane();
  const auto x = ike::uniform<float, shape{ike::dynamic, 20}>(ike::seed{2}, 3);
  const auto wide = ike::uniform<float, shape{ike::dynamic, ike::dynamic}>(ike::seed{2}, 3, 21);
  const auto expected = model(x);
  CHECK(same_bits(frozen(lane, x), expected));
  CHECK_THROWS_WITH_AS(frozen(lane, wide),
                       "fc1: linear expects in_features = 20, got 21 (input [3, 21])",
                       ike::shape_error);
  CHECK(same_bits(frozen(lane, x), expected));
  CHECK_THROWS_AS(other(lane, x), ike::state_error);
  CHECK_THROWS_AS(frozen.lane(shape{3, 21}), ike::shape_error);
  CHECK_THROWS_WITH_AS(frozen.lane(shape{ike::dynamic, 20}),
                       "a lane expects the extents of its largest inputs, got [dynamic, 20]",
                       ike::shape_error);
  CHECK_THROWS_AS(frozen.lane_bytes(shape{-3, 20}), ike::shape_error);
  static_assert(!std::is_copy_constructible_v<decltype(lane)>);
  static_assert(!decltype(frozen)::takes<ike::tensor<float, shape{3, 21}>>);
}

TEST_CASE("lanes and frozen networks that were moved from are refused") {
  auto frozen = ike::freeze(
      ike::initialize<float, shape{2, 3}>(ike::sequential(ike::linear<3, 2>{}), ike::seed{1}));
  auto lane = frozen.lane();
  const auto x = ike::uniform<float, shape{2, 3}>(ike::seed{2});
  auto other = std::move(lane);
  const std::string says = "the lane was moved from: use the one that it was moved to";
  CHECK_THROWS_WITH_AS(frozen(lane, x), says.c_str(), ike::state_error);
  CHECK_THROWS_AS(lane.reset(), ike::state_error);
  CHECK_THROWS_AS(lane.workspace_bytes(), ike::state_error);
  const auto network = std::move(frozen);
  CHECK_THROWS_WITH_AS(frozen.lane(),
                       "the inference model was moved from: use the one that it was moved to",
                       ike::state_error);
  CHECK_THROWS_AS(frozen.lane_bytes(), ike::state_error);
  CHECK_THROWS_AS(frozen.module(), ike::state_error);
  CHECK_THROWS_AS(frozen.weight_bytes(), ike::state_error);
  CHECK_THROWS_AS(frozen.parameters(), ike::state_error);
  CHECK_THROWS_AS(frozen.state(), ike::state_error);
  CHECK_THROWS_AS(frozen(other, x), ike::state_error);
  CHECK(network(other, x).size() == 4);
}

#if defined(__linux__)
namespace {

std::atomic<bool> locks_are_fatal{false};

/// Runs f in a process that is killed by any system call but exit and write, and by any lock.
/// Returns its exit status; -1 if the system does not offer that.
template <class F>
int run_confined(F f) {
  const pid_t child = fork();
  if (child == 0) {
    ike::prepare_thread();
    f();  // The first call makes what modules keep of their weights.
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(77);
    locks_are_fatal = true;
    const long before = allocation_count_here;
    for (int i = 0; i < 100; ++i) f();
    syscall(SYS_exit, allocation_count_here == before ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

}  // namespace

extern "C" int pthread_mutex_lock(pthread_mutex_t* m) noexcept {
  using lock = int (*)(pthread_mutex_t*);
  static const auto next = reinterpret_cast<lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  if (locks_are_fatal) __builtin_trap();
  return next(m);
}

TEST_CASE("a call makes no system call, takes no lock and allocates nothing") {
  volatile bool forbidden = true;
  const int killed = run_confined([&] {
    if (locks_are_fatal && forbidden) static_cast<void>(getppid());
  });
  if (killed == -1) {
    MESSAGE("skipped: the system does not confine processes");
    return;
  }
  REQUIRE(killed == 1000 + SIGKILL);

  auto model = ike::initialize<float, step>(stream, ike::seed{1});
  const auto frozen = ike::freeze(model);
  auto lane = frozen.lane();
  const auto x = ike::uniform<float, step>(ike::seed{4});
  CHECK(run_confined([&] { frozen(lane, x); }) == 0);

  auto convolutions = ike::initialize<float, shape{2, 1, 8, 8}>(images, ike::seed{1});
  const auto of_images = ike::freeze(convolutions);
  auto image_lane = of_images.lane();
  const auto image = ike::uniform<float, shape{2, 1, 8, 8}>(ike::seed{4});
  CHECK(run_confined([&] { of_images(image_lane, image); }) == 0);
}
#endif

namespace {

template <shape In, class Net>
void check_stack(const Net& net) {
  auto model = ike::initialize<float, In>(net, ike::seed{1});
  const auto frozen = ike::freeze(model);
  auto lane = frozen.lane();
  const auto x = ike::uniform<float, In>(ike::seed{2});
  const std::size_t empty = stack_of([] {});
  const std::size_t used = stack_of([&] {
    ike::prepare_thread();
    frozen(lane, x);
  });
  CHECK(used - empty <= 8 * 1024);
}

template <std::size_t... I>
constexpr auto deep(std::index_sequence<I...>) {
  return ike::sequential(
      (static_cast<void>(I), ike::residual(ike::lazy_linear<20>{}, ike::tanh{}))...);
}

}  // namespace

TEST_CASE("a call takes at most 8 KiB of stack, however deep the network") {
  if (!is_plain) return;
  check_stack<shape{3, 20}>(mlp);
  check_stack<shape{2, 1, 8, 8}>(images);
  check_stack<shape{2, 9}>(diamond);
  check_stack<step>(stream);
  check_stack<shape{1, 1, 1}>(ike::causal_conv1d<1, 1, ike::kernel<16384>, ike::stateful<1>>{});
  check_stack<shape{3, 20}>(ike::graph([](auto x) {
    const auto d = x - ike::mean<-1>(x, ike::keepdim);
    return d * ike::rsqrt(ike::mean<-1>(ike::square(d), ike::keepdim) + 1e-5);
  }));
  check_stack<shape{2, 5, 8}>(ike::transformer_encoder_layer<8, 2, 16>{});
  check_stack<shape{3, 20}>(deep(std::make_index_sequence<4>{}));
  check_stack<shape{3, 20}>(deep(std::make_index_sequence<40>{}));
}
