#include "ikebana/deploy/dynamic_batcher.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <future>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/adaptive_pool.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/lstm.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using namespace std::chrono_literals;
using ike::dim_t;
using ike::shape;

namespace {

constexpr auto mlp =
    ike::sequential("fc1"_m = ike::lazy_linear<33>{}, ike::relu{}, "fc2"_m = ike::lazy_linear<7>{},
                    ike::tanh{}, "fc3"_m = ike::lazy_linear<5>{});
constexpr auto images =
    ike::sequential("conv"_m = ike::lazy_conv2d<3, ike::kernel<3>>{}, ike::relu{}, ike::flatten{},
                    "fc"_m = ike::lazy_linear<4>{});
constexpr auto words = ike::sequential("words"_m = ike::embedding<10, 6>{}, ike::flatten{},
                                       "fc"_m = ike::lazy_linear<4>{});

template <class A, class B>
bool same_bits(const A& a, const B& b) {
  return static_cast<std::size_t>(a.size()) == static_cast<std::size_t>(b.size()) &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof(*a.data())) ==
             0;
}

template <class T, shape In>
auto frozen(const auto& net) {
  return ike::freeze(ike::initialize<T, In>(net, ike::seed{1}));
}

template <shape Sample, class T>
auto sample_of(const T* all, dim_t i) {
  return ike::tensor_view<const T, Sample>(all + i * Sample.numel());
}

/// Requests from several threads get the bits of one call for one sample.
template <class T, shape Sample>
void compare(const auto& net, const ike::dynamic_batcher_options& options) {
  constexpr shape in = ike::detail::with_batch_of(Sample, ike::dynamic);
  const auto frozen_net = frozen<T, in>(net);
  const dim_t samples = 12;
  const auto x = ike::uniform<T, in>(ike::seed{3}, samples);
  auto lane = frozen_net.lane();
  std::vector<std::vector<T>> expected;
  for (dim_t i = 0; i < samples; ++i) {
    const ike::tensor_view<const T, in> one(x.data() + i * Sample.numel(), in.with(0, 1));
    const auto y = frozen_net(lane, one);
    expected.emplace_back(y.begin(), y.end());
  }
  ike::dynamic_batcher server{frozen_net, options};
  std::atomic<int> wrong{0};
  std::vector<std::thread> clients;
  for (dim_t c = 0; c < 4; ++c)
    clients.emplace_back([&, c] {
      for (dim_t call = 0; call < 50; ++call) {
        const dim_t i = (c * 5 + call) % samples;
        wrong += !same_bits(server(sample_of<Sample>(x.data(), i)),
                            expected[static_cast<std::size_t>(i)]);
      }
    });
  for (std::thread& t : clients) t.join();
  CHECK(wrong == 0);
  CHECK(server.counts().requests == 200);
  CHECK(server.counts().batches <= 200);
}

}  // namespace

TEST_CASE("requests from several threads get the bits of a single sample") {
  compare<double, shape{20}>(mlp, {});
  compare<float, shape{20}>(mlp, {.max_batch_size = 3, .workers = 2});
  compare<float, shape{1, 6, 5}>(images,
                                 {.max_batch_size = 4, .max_queue_delay = 200us, .workers = 2});
}

TEST_CASE("requests that have arrived are answered by one call, up to max_batch_size") {
  const auto net = frozen<float, shape{ike::dynamic, 20}>(mlp);
  const auto x = ike::uniform<float, shape{10, 20}>(ike::seed{3});
  ike::dynamic_batcher server{net,
                              {.max_batch_size = 4, .max_queue_delay = std::chrono::seconds(100)}};
  std::vector<std::future<ike::tensor<float, shape{5}>>> answers;
  for (dim_t i = 0; i < 8; ++i) answers.push_back(server.submit(sample_of<shape{20}>(x.data(), i)));
  for (auto& y : answers) y.wait();
  CHECK(server.counts().requests == 8);
  CHECK(server.counts().batches == 2);
  // Two wait for others, until the batcher ends.
  auto late = server.submit(sample_of<shape{20}>(x.data(), 8));
  auto later = server.submit(sample_of<shape{20}>(x.data(), 9));
  CHECK(later.wait_for(1ms) == std::future_status::timeout);
  server.shutdown();
  CHECK(server.counts().batches == 3);
  auto lane = net.lane();
  const auto all = net(lane, x);
  CHECK(same_bits(late.get(), sample_of<shape{5}>(all.data(), 8)));
  CHECK(same_bits(later.get(), sample_of<shape{5}>(all.data(), 9)));
  CHECK_THROWS_WITH_AS(server(sample_of<shape{20}>(x.data(), 0)),
                       "the dynamic_batcher has been shut down", ike::error);
}

TEST_CASE("a batch that is not full leaves when its first request has waited for the delay") {
  const auto net = frozen<float, shape{ike::dynamic, 20}>(mlp);
  const auto x = ike::uniform<float, shape{20}>(ike::seed{3});
  ike::dynamic_batcher server{net, {.max_batch_size = 4, .max_queue_delay = 2ms, .workers = 2}};
  const auto begin = std::chrono::steady_clock::now();
  server(x);
  CHECK(std::chrono::steady_clock::now() - begin >= 2ms);
}

TEST_CASE("requests beyond max_queue_size are refused, and nothing is lost") {
  const auto net = frozen<float, shape{ike::dynamic, 20}>(mlp);
  const auto x = ike::uniform<float, shape{20}>(ike::seed{3});
  std::promise<void> may_go;
  std::shared_future<void> go{may_go.get_future()};
  ike::dynamic_batcher server{net, {.max_batch_size = 1, .max_queue_size = 2}};
  std::promise<void> is_busy;
  server.submit(
      [&](const std::exception_ptr&, const auto&) {
        is_busy.set_value();
        go.wait();
      },
      x);
  is_busy.get_future().wait();
  auto first = server.submit(x), second = server.submit(x);
  CHECK_THROWS_WITH_AS(server(x), "the queue of the dynamic_batcher is full: it has 2 requests",
                       ike::queue_full);
  CHECK_THROWS_AS(server.submit(x), ike::queue_full);
  may_go.set_value();
  CHECK(same_bits(first.get(), second.get()));
  CHECK(server(x).size() == 5);
}

TEST_CASE("an error reaches the caller whose request causes it, not its neighbours") {
  const auto net = frozen<float, shape{ike::dynamic, 3}>(words);
  auto lane = net.lane();
  const auto good = ike::tensor_of<std::int64_t, shape{3}>({1, 2, 3});
  const auto wrong = ike::tensor_of<std::int64_t, shape{3}>({1, 2, 11});
  const auto expected = net(lane, ike::tensor_view<const std::int64_t, shape{1, 3}>(good.data()));
  ike::dynamic_batcher server{net,
                              {.max_batch_size = 3, .max_queue_delay = std::chrono::seconds(100)}};
  auto a = server.submit(good), b = server.submit(wrong), c = server.submit(good);
  CHECK(same_bits(a.get(), expected));
  CHECK_THROWS_AS(b.get(), ike::error);
  CHECK(same_bits(c.get(), expected));
  CHECK(server.counts().batches == 1);

  ike::dynamic_batcher alone{net};
  CHECK_THROWS_AS(alone(wrong), ike::error);
  std::promise<bool> failed;
  alone.submit([&](const std::exception_ptr& e,
                   const auto& y) { failed.set_value(e != nullptr && y.data() == nullptr); },
               wrong);
  CHECK(failed.get_future().get());
}

TEST_CASE("a worker calls a function with the answer") {
  const auto net = frozen<float, shape{ike::dynamic, 20}>(mlp);
  const auto x = ike::uniform<float, shape{20}>(ike::seed{3});
  ike::dynamic_batcher server{net, {.workers = 2}};
  std::atomic<int> right{0};
  const auto y = server(x);
  for (int i = 0; i < 20; ++i)
    server.submit([&](const std::exception_ptr& e,
                      const auto& answer) { right += e == nullptr && same_bits(answer, y); },
                  x);
  server.shutdown();
  CHECK(right == 20);
}

TEST_CASE("several inputs and outputs") {
  constexpr auto net = ike::graph([](auto a, auto b) {
    auto h = "fc"_m(ike::lazy_linear<3>{}, a);
    return std::tuple(h + b, ike::relu{}(h));
  });
  const auto both = ike::freeze(
      ike::initialize<double, shape{ike::dynamic, 4}, shape{ike::dynamic, 3}>(net, ike::seed{1}));
  const auto a = ike::uniform<double, shape{2, 4}>(ike::seed{1});
  const auto b = ike::uniform<double, shape{2, 3}>(ike::seed{2});
  auto lane = both.lane();
  const auto [sum, positive] = both(lane, a, b);
  ike::dynamic_batcher server{both,
                              {.max_batch_size = 2, .max_queue_delay = std::chrono::seconds(100)}};
  auto first = server.submit(sample_of<shape{4}>(a.data(), 0), sample_of<shape{3}>(b.data(), 0));
  ike::tensor<double, shape{3}> y, z;
  server.answer({y, z}, sample_of<shape{4}>(a.data(), 1), sample_of<shape{3}>(b.data(), 1));
  const auto [s, p] = first.get();
  CHECK(same_bits(s, sample_of<shape{3}>(sum.data(), 0)));
  CHECK(same_bits(p, sample_of<shape{3}>(positive.data(), 0)));
  CHECK(same_bits(y, sample_of<shape{3}>(sum.data(), 1)));
  CHECK(same_bits(z, sample_of<shape{3}>(positive.data(), 1)));
}

TEST_CASE("samples of different extents are in different batches") {
  constexpr auto net = ike::sequential("conv"_m = ike::conv1d<2, 3, ike::kernel<3>>{}, ike::relu{});
  const auto sequences = frozen<float, shape{ike::dynamic, 2, ike::dynamic}>(net);
  const auto at = [&](dim_t length) {
    return ike::uniform<float, shape{2, ike::dynamic}>(ike::seed{4}, length);
  };
  auto lane = sequences.lane();
  ike::dynamic_batcher server{sequences,
                              {.max_batch_size = 5, .max_queue_delay = std::chrono::seconds(100)}};
  const dim_t lengths[] = {5, 5, 9, 9, 5};
  std::vector<std::future<ike::tensor<float, shape{3, ike::dynamic}>>> answers;
  for (dim_t length : lengths) answers.push_back(server.submit(at(length)));
  std::size_t i = 0;
  for (dim_t length : lengths) {
    if (i == 4) server.shutdown();  // The last one waits for others; none of these has.
    const auto x = at(length);
    const ike::tensor_view<const float, shape{1, 2, ike::dynamic}> one(x.data(),
                                                                       shape{1, 2, length});
    const auto y = answers[i++].get();
    CHECK(y.extents() == shape{3, length - 2});
    CHECK(same_bits(y, sequences(lane, one)));
  }
  CHECK(server.counts().batches == 3);
  ike::dynamic_batcher at_once{sequences};
  CHECK_THROWS_AS(
      at_once(ike::uniform<float, shape{ike::dynamic, ike::dynamic}>(ike::seed{1}, 3, 5)),
      ike::shape_error);
  ike::tensor<float, shape{3, 2}> memory;
  CHECK_THROWS_AS(at_once.answer(memory, at(5)), ike::shape_error);
  at_once.answer(memory, at(4));
  // Too short for the kernel: known only where the network runs.
  CHECK_THROWS_AS(at_once(at(2)), ike::shape_error);
}

TEST_CASE("once it has started, a batcher answers into memory without allocation") {
  const auto net = frozen<float, shape{ike::dynamic, 20}>(mlp);
  const auto x = ike::uniform<float, shape{20}>(ike::seed{3});
  ike::dynamic_batcher server{net, {.max_batch_size = 4, .workers = 2}};
  ike::tensor<float, shape{5}> y[3];
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  long before = 0, after = 0;
  std::vector<std::thread> clients;
  for (auto& mine : y)
    clients.emplace_back([&] {
      ++ready;
      while (!go) std::this_thread::yield();
      for (int i = 0; i < 100; ++i) server.answer(mine, x);
      ++ready;
      while (go) std::this_thread::yield();
    });
  while (ready < 3) std::this_thread::yield();
  before = allocation_count;
  go = true;
  while (ready < 6) std::this_thread::yield();
  after = allocation_count;
  go = false;
  for (std::thread& t : clients) t.join();
  CHECK(after == before);
  CHECK(same_bits(y[0], y[2]));
}

TEST_CASE("invalid options are refused") {
  const auto net = frozen<float, shape{ike::dynamic, 20}>(mlp);
  CHECK_THROWS_WITH_AS((ike::dynamic_batcher{net, {.max_batch_size = 0}}),
                       "dynamic_batcher needs a max_batch_size of at least 1", ike::error);
  CHECK_THROWS_WITH_AS((ike::dynamic_batcher{net, {.workers = 0}}),
                       "dynamic_batcher needs at least 1 worker", ike::error);
  CHECK_THROWS_WITH_AS((ike::dynamic_batcher{net, {.max_queue_delay = -1us}}),
                       "dynamic_batcher needs a max_queue_delay of at least 0", ike::error);
}
