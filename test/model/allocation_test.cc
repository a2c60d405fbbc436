#include <doctest/doctest.h>
#include <pthread.h>

#include <cstdint>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/io/data_loader.hpp"
#include "ikebana/io/dataset.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/pool.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/train/metrics.hpp"
#include "ikebana/train/progress.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

constexpr auto network = ike::sequential(
    "conv1"_m = ike::lazy_conv2d<4, ike::kernel<3>, ike::padding<1>>{},
    "bn1"_m = ike::lazy_batch_norm2d<>{}, "relu1"_m = ike::relu{},
    "block"_m = ike::residual(ike::lazy_conv2d<4, ike::kernel<3>, ike::padding<1>>{}, ike::tanh{}),
    "pool1"_m = ike::max_pool2d<ike::kernel<2>>{}, "flatten"_m = ike::flatten{},
    "drop"_m = ike::dropout{.p = 0.3}, "fc1"_m = ike::lazy_linear<16>{}, "gelu"_m = ike::gelu{},
    "fc2"_m = ike::lazy_linear<3>{});

constexpr shape fixed{6, 1, 8, 8};
constexpr shape growing{ike::dynamic, 1, 8, 8};

ike::tensor<float, growing> images(ike::dim_t n) {
  return ike::uniform<float, growing>(ike::seed{3}, n);
}

ike::tensor<std::int64_t, shape{ike::dynamic}> classes(ike::dim_t n) {
  ike::tensor<std::int64_t, shape{ike::dynamic}> t(shape{n});
  for (ike::dim_t i = 0; i < n; ++i) t[i] = i % 3;
  return t;
}

/// The allocations of `times` calls of f.
template <class F>
long allocations(int times, F&& f) {
  const long before = allocation_count.load();
  for (int i = 0; i < times; ++i) f();
  return allocation_count.load() - before;
}

template <class Model, class Optimizer, class X, class Y>
long steps_2_to_100(Model& model, Optimizer& optimizer, const X& x, const Y& t) {
  const auto step = [&] { model.train_step(x, t, ike::cross_entropy{}, optimizer); };
  step();
  return allocations(99, step);
}

}  // namespace

TEST_CASE("the counter sees what is allocated, aligned or not") {
  CHECK(allocations(1, [] { ::operator delete(::operator new(4)); }) == 1);
  CHECK(allocations(1, [] { std::vector<char> v(100); }) == 1);
  CHECK(allocations(1, [] { ike::aligned_buffer<float> b(100); }) == 1);
}

TEST_CASE("steps 2 to 100 of training allocate nothing, with a static batch") {
  auto model = ike::initialize<float, fixed>(network, ike::seed{1});
  const ike::tensor<float, fixed> x{images(6).view()};
  const auto t = classes(6);
  ike::sgd sgd{model, {.lr = 0.01, .momentum = 0.9}};
  CHECK(steps_2_to_100(model, sgd, x, t) == 0);
  ike::adam adam{model, {.lr = 0.001, .amsgrad = true}};
  CHECK(steps_2_to_100(model, adam, x, t) == 0);
}

TEST_CASE("with a static batch the first step allocates nothing either") {
  auto model = ike::initialize<float, fixed>(network, ike::seed{1});
  const auto x = images(6);
  const auto t = classes(6);
  ike::sgd sgd{model, {.lr = 0.01}};
  const ike::tensor<float, fixed> in{x.view()};
  // Kernels may allocate memory per thread in the first step of a program.
  model.train_step(in, t, ike::cross_entropy{}, sgd);
  auto second = ike::initialize<float, fixed>(network, ike::seed{1});
  ike::sgd again{second, {.lr = 0.01}};
  CHECK(allocations(1, [&] { second.train_step(in, t, ike::cross_entropy{}, again); }) == 0);
}

TEST_CASE("steps 2 to 100 of training allocate nothing, with a dynamic batch") {
  auto model = ike::initialize<float, growing>(network, ike::seed{1});
  const auto x = images(6);
  const auto t = classes(6);
  ike::sgd sgd{model, {.lr = 0.01, .momentum = 0.9, .nesterov = true}};
  CHECK(steps_2_to_100(model, sgd, x, t) == 0);
  ike::adamw adamw{model, {.lr = 0.001}};
  CHECK(steps_2_to_100(model, adamw, x, t) == 0);
}

TEST_CASE("batches of alternating size allocate nothing once the largest was seen") {
  auto model = ike::initialize<float, growing>(network, ike::seed{1});
  ike::sgd sgd{model, {.lr = 0.01}};
  const auto x8 = images(8), x5 = images(5), x1 = images(1);
  const auto t8 = classes(8), t5 = classes(5), t1 = classes(1);
  const auto steps = [&] {
    model.train_step(x8, t8, ike::cross_entropy{}, sgd);
    model.train_step(x5, t5, ike::cross_entropy{}, sgd);
    model.train_step(x1, t1, ike::cross_entropy{}, sgd);
  };
  model.train_step(x8, t8, ike::cross_entropy{}, sgd);
  CHECK(allocations(30, steps) == 0);
}

TEST_CASE("epochs with a loader, a progress bar and metrics allocate nothing") {
  const ike::tensor_dataset data(images(20), classes(20));
  auto model = ike::initialize<float, growing>(network, ike::seed{1});
  ike::adam adam{model, {.lr = 0.001}};
  ike::data_loader loader(data, {.batch = 6, .shuffle = ike::seed{2}});
  ike::confusion_matrix confusion{3};
  const auto epoch = [&] {
    ike::progress_bar bar(loader.samples(), {.enabled = false});
    for (auto [x, t] : loader) {
      bar.set("loss", static_cast<double>(model.train_step(x, t, ike::cross_entropy{}, adam)));
      confusion.add(model.output(), t);
      bar.advance(x.extent(0));
    }
  };
  epoch();
  CHECK(allocations(25, epoch) == 0);
}

TEST_CASE("accumulation, backward by hand and inference allocate nothing") {
  auto model = ike::initialize<float, growing>(network, ike::seed{1});
  const auto x = images(6);
  const auto t = classes(6);
  ike::tensor<float, growing> dx(x.extents());
  ike::tensor<float, shape{ike::dynamic, 3}> dy(shape{6, 3});
  const auto work = [&] {
    model.train();
    model.zero_grad();
    model.loss_backward(x, t, ike::cross_entropy{});
    model(x);
    model.backward(dy);
    model(x);
    model.backward(dy, dx);
    model.eval();
    model(x);
  };
  work();
  CHECK(allocations(20, work) == 0);
}

TEST_CASE("replicas train without allocating") {
  const ike::tensor_dataset data(images(24), classes(24));
  const auto counts = ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
    using policy = ike::replicate_policy<ike::bucket_cap<64>>;
    auto model =
        ike::replicate<policy>(ike::initialize<float, growing>(network, ike::seed{1}), group);
    ike::adam adam{model, {.lr = 0.001}};
    ike::data_loader loader(data, {.batch = 4, .shuffle = ike::seed{2}, .shard = group});
    const auto epoch = [&] {
      for (auto [x, t] : loader) model.train_step(x, t, ike::cross_entropy{}, adam);
    };
    epoch();
    epoch();
    group.barrier();
    const long before = allocation_count.load();
    for (int i = 0; i < 25; ++i) epoch();
    group.barrier();
    const long after = allocation_count.load();
    group.barrier();  // No rank returns, and allocates, before all have read.
    return after - before;
  });
  for (long n : counts) CHECK(n == 0);
}

TEST_CASE("a thread with a stack of 256 KiB can train") {
  auto model = ike::initialize<float, growing>(network, ike::seed{1});
  ike::sgd sgd{model, {.lr = 0.01}};
  const auto x = images(64);
  const auto t = classes(64);
  struct task {
    decltype(model)& m;
    decltype(sgd)& o;
    decltype(x)& in;
    decltype(t)& target;
    float loss = 0;
  } work{model, sgd, x, t};
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, 256 * 1024) == 0);
  pthread_t thread;
  REQUIRE(pthread_create(
              &thread, &attributes,
              [](void* p) -> void* {
                task& w = *static_cast<task*>(p);
                for (int i = 0; i < 3; ++i)
                  w.loss = w.m.train_step(w.in, w.target, ike::cross_entropy{}, w.o);
                return nullptr;
              },
              &work) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  pthread_attr_destroy(&attributes);
  CHECK(work.loss > 0);
  CHECK(sizeof(model) < 1024);
}
