#pragma once

#include <array>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/deploy/prepare_thread.hpp"
#include "ikebana/deploy/request_queue.hpp"
#include "ikebana/model/calls/call_arguments.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/model/network/input_check.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/shape_list.hpp"

namespace ikebana {

/// Options of dynamic_batcher; the names are those of Triton Inference Server's model
/// configuration.
struct dynamic_batcher_options {
  dim_t max_batch_size = 8;  ///< The most requests in one call of the network.
  /// How long a request waits for others if fewer than max_batch_size are there. With 0, a worker
  /// that is free takes what has arrived.
  std::chrono::microseconds max_queue_delay{0};
  int workers = 1;                 ///< Threads, each with a lane (Triton: instances).
  std::size_t max_queue_size = 0;  ///< More requests are refused by queue_full; 0: none are.
};

/// What the workers of a dynamic_batcher have taken so far.
struct dynamic_batcher_counts {
  std::uint64_t requests = 0;  ///< Those answered by an error, too.
  std::uint64_t batches = 0;   ///< requests / batches is the average batch.
};

namespace detail {

constexpr shape without_batch(const shape& s) {
  shape sample;
  for (std::size_t i = 1; i < s.rank(); ++i) sample.push_back(s[i]);
  return sample;
}
constexpr shape with_batch_of(const shape& sample, dim_t batch) {
  if (sample.rank() == shape::max_rank) return sample;
  shape s{batch};
  for (dim_t d : sample) s.push_back(d);
  return s;
}

/// The type of an argument that holds a batch of samples of type X.
template <class X>
struct batched_argument {
  using type = X;
};
template <tensor_like X>
struct batched_argument<X> {
  using type =
      tensor_view<const typename X::value_type, with_batch_of(X::static_shape, ikebana::dynamic)>;
};
template <class Name, class X>
struct batched_argument<argument<Name, X>> {
  using type = argument<Name, typename batched_argument<X>::type>;
};

template <class T, element_kind Kind>
using input_element =
    std::conditional_t<Kind == element_kind::real, T,
                       std::conditional_t<Kind == element_kind::boolean, bool, std::int64_t>>;

}  // namespace detail

/// Answers requests of single samples from many threads with batches: worker threads, each with a
/// lane, take what has arrived, up to max_batch_size requests, call the network once, and give each
/// request its row. A larger batch takes less time for each sample; a delay trades latency for
/// larger batches.
///
/// ```
/// ike::dynamic_batcher server{net, {.max_batch_size = 16, .workers = 2}};
/// auto y = server(x);                    // any thread; blocks
/// std::future f = server.submit(x);      // or later
/// ```
///
/// For a network [dynamic, ...] -> [dynamic, ...] without state, in which each row of an output
/// depends on the same rows of the inputs alone. A request is one sample, without the dimension of
/// the batch; its answer has the bits that the network gives for this sample alone. Requests are
/// answered in the order of arrival; if their extents differ (dynamic dimensions), neighbours of
/// the same extents make up a batch.
///
/// Errors: a shape that does not fit is a compile error or a shape_error in the caller's thread.
/// What the network throws (a wrong index) reaches the caller whose request causes it: the batch is
/// run again, one request at a time.
///
/// The constructor starts the workers and allocates all that they need. Afterwards neither they nor
/// `answer` allocate, unless extents other than the batch are dynamic. Not movable.
template <model_element E, resolved_module M, shape... In>
class dynamic_batcher {
  using net_type = inference_model<E, M, In...>;
  using trained = model<E, M, In...>;
  using arguments = detail::call_arguments<trained>;
  using T = element_of<E>;
  static constexpr std::size_t input_count = sizeof...(In);
  static constexpr std::size_t output_count = trained::output_count;
  static constexpr shape_list declared{In...};

  static constexpr bool has_batches = [] {
    constexpr auto is_any = [](const shape& s) { return s.rank() > 0 && s[0] == ikebana::dynamic; };
    for (std::size_t o = 0; o < output_count; ++o)
      if (!is_any(trained::lowered().output(o))) return false;
    return input_count > 0 && (is_any(In) && ...);
  }();
  static constexpr bool has_state = [] {
    for (const auto& node : trained::lowered().nodes)
      if (node.role.is_stateful) return true;
    return false;
  }();
  static_assert(has_batches,
                "ikebana: dynamic_batcher needs a network of batches of any size: initialize<T, "
                "shape{dynamic, ..}>(module, seed)");
  static_assert(!has_state,
                "ikebana: dynamic_batcher needs a network without state: a stateful module "
                "continues one sequence, which needs a lane of its own");

  template <std::size_t I>
  static constexpr shape input_shape = declared[I];
  template <std::size_t I>
  using input_type = detail::input_element<T, trained::lowered().kinds[I]>;
  template <std::size_t O>
  static constexpr shape output_sample = detail::without_batch(trained::lowered().output(O));
  static constexpr auto each_input = std::make_index_sequence<input_count>{};
  static constexpr auto each_output = std::make_index_sequence<output_count>{};

  template <template <class, shape> class Tensor, class U, std::size_t... O>
  static auto tuple_of(std::index_sequence<O...>) -> std::tuple<Tensor<U, output_sample<O>>...>;
  template <class Tuple>
  struct one_or_all {
    using type = Tuple;
  };
  template <class One>
  struct one_or_all<std::tuple<One>> {
    using type = One;
  };

  using rows = decltype(tuple_of<tensor_view, const T>(each_output));
  using memories = decltype(tuple_of<tensor_view, T>(each_output));
  using answers = decltype(tuple_of<tensor, T>(each_output));

 public:
  using value_type = T;
  /// A tensor of the extents of an output without the batch, or a std::tuple of them.
  using answer_type = typename one_or_all<answers>::type;
  /// A view of memory for it, or a std::tuple of them.
  using answer_view = typename one_or_all<memories>::type;

  /// The error of a request of these types, if any; a constant expression.
  template <class... X>
  static constexpr diagnostic check_call() {
    return trained::template check_call<typename detail::batched_argument<X>::type...>();
  }
  template <class... X>
  static constexpr bool takes = detail::accepts<check_call<X...>>;
  /// Whether F can be called with an exception and the answer.
  template <class F>
  static constexpr bool is_callback = []<std::size_t... O>(std::index_sequence<O...>) {
    return !model_input<F> &&
           std::invocable<F&, std::exception_ptr, const std::tuple_element_t<O, rows>&...>;
  }
  (each_output);

  /// Keeps a copy of the network, which shares the weights. Starts the workers. Throws error for
  /// invalid options, std::system_error if a thread cannot be started. Allocates.
  explicit dynamic_batcher(const net_type& net, const dynamic_batcher_options& options = {})
      : net_{net},
        options_{checked(options)},
        queue_{static_cast<std::size_t>(options.max_batch_size), options.max_queue_delay,
               options.max_queue_size} {
    try {
      workers_.reserve(static_cast<std::size_t>(options.workers));
      for (int i = 0; i < options.workers; ++i)
        workers_.emplace_back([this, w = std::make_unique<worker>(net_, options_)] { work(*w); });
      std::unique_lock lock(answered_);
      prepared_.wait(lock, [&] { return ready_ == workers_.size(); });
      if (failed_ != nullptr) std::rethrow_exception(failed_);
    } catch (...) {
      shutdown();
      throw;
    }
  }
  dynamic_batcher(const dynamic_batcher&) = delete;
  dynamic_batcher& operator=(const dynamic_batcher&) = delete;
  /// shutdown(). No thread may be in a call.
  ~dynamic_batcher() { shutdown(); }

  /// Refuses further requests, answers those that have arrived, and ends the workers. Not to be
  /// called in a callback.
  void shutdown() {
    queue_.close();
    const std::lock_guard lock(ending_);
    for (std::thread& t : workers_)
      if (t.joinable()) t.join();
  }

  /// The answer to a request, when it is there. Allocates the answer. Throws queue_full; error
  /// after shutdown(); shape_error; what the network throws.
  template <class... X>
  requires takes<X...> answer_type operator()(const X&... x) {
    std::optional<answers> y;
    wait_for([&](const rows& row) { y.emplace(copied(row, each_output)); }, x...);
    return unwrapped(*std::move(y));
  }

  /// The same into the caller's memory. Does not allocate. Throws shape_error if `y` has other
  /// extents.
  template <class... X>
  requires takes<X...>
  void answer(const answer_view& y, const X&... x) {
    wait_for([&](const rows& row) { write(row, memories(y), each_output); }, x...);
  }

  /// The same for later: copies the inputs. Allocates.
  template <class... X>
  requires takes<X...> std::future<answer_type> submit(const X&... x) {
    std::promise<answer_type> promise;
    std::future<answer_type> y = promise.get_future();
    push_copy(
        [p = std::move(promise)](std::exception_ptr failed, const rows* row) mutable {
          try {
            if (failed != nullptr)
              p.set_exception(std::move(failed));
            else
              p.set_value(unwrapped(copied(*row, each_output)));
          } catch (...) {
            p.set_exception(std::current_exception());
          }
        },
        x...);
    return y;
  }

  /// The same for a worker to call `f(error, y)`, or `f(error, y0, y1, ..)` for several outputs,
  /// with views that are valid until it returns, or with an error that is not null and views
  /// without memory. It must not throw, block, or make a blocking request to this batcher.
  template <class F, class... X>
  requires(takes<X...>&& is_callback<F>) void submit(F f, const X&... x) {
    push_copy(
        [g = std::move(f)](std::exception_ptr failed, const rows* row) mutable {
          std::apply([&](const auto&... y) { g(std::move(failed), y...); },
                     row == nullptr ? rows{} : *row);
        },
        x...);
  }

  template <class... X>
  requires(!takes<X...>) auto operator()(const X&...)
      -> decltype(detail::refuse<check_call<X...>>());
  template <class... X>
  requires(!takes<X...>) auto answer(const answer_view&, const X&...)
      -> decltype(detail::refuse<check_call<X...>>());
  template <class X, class... Others>
  requires(!takes<X, Others...> && !is_callback<X>) auto submit(const X&, const Others&...)
      -> decltype(detail::refuse<check_call<X, Others...>>());
  template <class F, class... X>
  requires(!takes<X...> && is_callback<F>) auto submit(const F&, const X&...)
      -> decltype(detail::refuse<check_call<X...>>());

  const dynamic_batcher_options& options() const { return options_; }
  dynamic_batcher_counts counts() const {
    const auto taken = queue_.taken();
    return {taken.requests, taken.batches};
  }

 private:
  static constexpr bool is_static = [] {
    for (const shape& s : declared.items)
      if (!detail::without_batch(s).is_static()) return false;
    return true;
  }();

  struct request {
    virtual void finish(const rows& row) noexcept = 0;
    virtual void fail(std::exception_ptr error) noexcept = 0;

    bool joins(const request& first) const {
      return is_static || detail::same(extents, first.extents);
    }

    typename arguments::pointers inputs{};
    shape_list extents{};  // Of the sample, in a batch of 1; only if some are dynamic.
    request* next = nullptr;
    typename detail::request_queue<request>::clock::time_point arrived{};

   protected:
    ~request() = default;
  };

  /// The request of a caller that waits.
  template <class Write>
  struct waiting final : request {
    waiting(std::mutex& m, Write& w) : mutex{m}, write{w} {}

    void finish(const rows& row) noexcept override {
      std::exception_ptr e;
      try {
        write(row);
      } catch (...) {
        e = std::current_exception();
      }
      fail(std::move(e));
    }
    // Notifies under the lock: without it, the caller might have gone already.
    void fail(std::exception_ptr e) noexcept override {
      const std::lock_guard lock(mutex);
      failed = std::move(e);
      done = true;
      changed.notify_one();
    }
    void wait() {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return done; });
      if (failed != nullptr) std::rethrow_exception(failed);
    }

    std::mutex& mutex;
    Write& write;
    std::condition_variable changed;
    std::exception_ptr failed;
    bool done = false;
  };

  /// A request with its own copy of the inputs, which deletes itself.
  template <class F>
  struct copy final : request {
    explicit copy(F g) : f{std::move(g)} {}
    void finish(const rows& row) noexcept override {
      f(std::exception_ptr{}, &row);
      delete this;
    }
    void fail(std::exception_ptr e) noexcept override {
      f(std::move(e), nullptr);
      delete this;
    }

    F f;
    std::array<aligned_buffer<std::byte>, input_count> memory;
  };

  struct worker {
    worker(const net_type& net, const dynamic_batcher_options& o)
        : batch(static_cast<std::size_t>(o.max_batch_size)),
          lane{make_lane(net, o.max_batch_size)} {
      if constexpr (is_static) reserve(o.max_batch_size, each_input);
    }
    static auto make_lane(const net_type& net, dim_t most) {
      if constexpr (is_static)
        return net.lane(In.with(0, most)...);
      else
        return net.lane();
    }
    template <std::size_t... I>
    void reserve(dim_t most, std::index_sequence<I...>) {
      (..., (std::get<I>(inputs) = aligned_buffer<input_type<I>>(
                 detail::with_batch_of(detail::without_batch(declared[I]), most).numel())));
    }

    std::vector<request*> batch;
    typename net_type::lane_type lane;
    decltype([]<std::size_t... I>(std::index_sequence<I...>) {
      return std::tuple<aligned_buffer<input_type<I>>...>{};
    }(each_input)) inputs;
  };

  static const dynamic_batcher_options& checked(const dynamic_batcher_options& o) {
    if (o.max_batch_size < 1) throw error("dynamic_batcher needs a max_batch_size of at least 1");
    if (o.workers < 1) throw error("dynamic_batcher needs at least 1 worker");
    if (o.max_queue_delay < std::chrono::microseconds::zero())
      throw error("dynamic_batcher needs a max_queue_delay of at least 0");
    return o;
  }

  template <class... X>
  static void set_inputs(request& r, const X&... x) {
    r.inputs = arguments::data(x...);
    if constexpr (!is_static ||
                  !(detail::argument_tensor<X>::type::static_shape.is_static() && ...)) {
      shape_list given = arguments::shapes(x...);
      for (std::size_t i = 0; i < input_count; ++i) given[i] = detail::with_batch_of(given[i], 1);
      if (!detail::all_compatible(declared, given))
        throw shape_error(detail::check_inputs(M{}, declared, given));
      r.extents = given;
    }
  }

  template <class Write, class... X>
  void wait_for(Write write, const X&... x) {
    waiting<Write> r(answered_, write);
    set_inputs(r, x...);
    queue_.push(r);
    r.wait();
  }

  template <class F, class... X>
  void push_copy(F f, const X&... x) {
    auto r = std::make_unique<copy<F>>(std::move(f));
    set_inputs(*r, x...);
    const shape_list extents = arguments::shapes(x...);
    copy_inputs(*r, extents, each_input);
    queue_.push(*r);
    static_cast<void>(r.release());
  }
  template <std::size_t... I>
  static void copy_inputs(auto& r, const shape_list& extents, std::index_sequence<I...>) {
    const auto copy_one = [&]<std::size_t K>(std::integral_constant<std::size_t, K>) {
      const dim_t bytes = extents[K].numel() * static_cast<dim_t>(sizeof(input_type<K>));
      r.memory[K] = aligned_buffer<std::byte>(bytes);
      copy_bytes(bytes, r.inputs[K], r.memory[K].data());
      r.inputs[K] = r.memory[K].data();
    };
    (..., copy_one(std::integral_constant<std::size_t, I>{}));
  }

  static void copy_bytes(dim_t n, const void* from, void* to) {
    if (n > 0) std::memcpy(to, from, static_cast<std::size_t>(n));
  }

  void work(worker& w) {
    std::exception_ptr unprepared;
    try {
      prepare_thread(net_);
    } catch (...) {
      unprepared = std::current_exception();
    }
    {
      const std::lock_guard lock(answered_);
      ++ready_;
      if (unprepared != nullptr) failed_ = unprepared;
      prepared_.notify_one();
    }
    while (const std::size_t n = queue_.take(w.batch)) run(w, std::span(w.batch).first(n));
  }

  void run(worker& w, std::span<request* const> batch) noexcept {
    std::array<const T*, output_count> y;
    std::array<shape, output_count> extents;
    std::exception_ptr failed;
    try {
      y = infer(w, batch, extents, each_input);
    } catch (...) {
      failed = std::current_exception();
    }
    if (failed == nullptr)
      for (std::size_t k = 0; k < batch.size(); ++k)
        finish(*batch[k], static_cast<dim_t>(k), y, extents, each_output);
    else if (batch.size() == 1)
      batch[0]->fail(std::move(failed));
    else
      for (std::size_t k = 0; k < batch.size(); ++k) run(w, batch.subspan(k, 1));
  }

  template <std::size_t... O>
  static void finish(request& r, dim_t k, const std::array<const T*, output_count>& y,
                     const std::array<shape, output_count>& extents, std::index_sequence<O...>) {
    r.finish(
        rows(tensor_view<const T, output_sample<O>>(y[O] + k * extents[O].numel(), extents[O])...));
  }

  /// Calls the network for a batch. The outputs are in the lane's memory.
  template <std::size_t... I>
  std::array<const T*, output_count> infer(worker& w, std::span<request* const> batch,
                                           std::array<shape, output_count>& extents,
                                           std::index_sequence<I...>) {
    const auto n = static_cast<dim_t>(batch.size());
    const auto gather = [&]<std::size_t K>(std::integral_constant<std::size_t, K>) {
      using U = input_type<K>;
      const shape s = is_static ? input_shape<K>.with(0, n) : batch[0]->extents[K].with(0, n);
      // A single request is read in place.
      if (n == 1)
        return tensor_view<const U, input_shape<K>>(static_cast<const U*>(batch[0]->inputs[K]), s);
      auto& memory = std::get<K>(w.inputs);
      if (s.numel() > memory.size()) memory = aligned_buffer<U>(s.numel());
      const dim_t row = s.numel() / n;
      for (dim_t i = 0; i < n; ++i)
        copy_bytes(row * static_cast<dim_t>(sizeof(U)),
                   batch[static_cast<std::size_t>(i)]->inputs[K], memory.data() + i * row);
      return tensor_view<const U, input_shape<K>>(memory.data(), s);
    };
    const auto y = net_(w.lane, gather(std::integral_constant<std::size_t, I>{})...);
    std::array<const T*, output_count> data{};
    std::size_t o = 0;
    const auto keep = [&](const auto& one) {
      if (one.extents()[0] != n)
        throw error("dynamic_batcher needs a network whose outputs have a row for each sample");
      extents[o] = detail::without_batch(one.extents());
      data[o++] = one.data();
    };
    if constexpr (output_count == 1)
      keep(y);
    else
      std::apply([&](const auto&... each) { (..., keep(each)); }, y);
    return data;
  }

  template <std::size_t... O>
  static answers copied(const rows& row, std::index_sequence<O...>) {
    return answers(tensor<T, output_sample<O>>(std::get<O>(row))...);
  }
  static answer_type unwrapped(answers&& y) {
    if constexpr (output_count == 1)
      return std::get<0>(std::move(y));
    else
      return std::move(y);
  }
  template <std::size_t... O>
  static void write(const rows& row, const memories& y, std::index_sequence<O...>) {
    const auto check = [](const auto& from, const auto& to) {
      if (!(from.extents() == to.extents()))
        throw shape_error(diagnostic{"the answer has the shape {input}, its memory {other}", 0, 0,
                                     from.extents(), to.extents()});
    };
    (..., check(std::get<O>(row), std::get<O>(y)));
    (..., copy_bytes(std::get<O>(row).size() * static_cast<dim_t>(sizeof(T)),
                     std::get<O>(row).data(), std::get<O>(y).data()));
  }

  const net_type net_;
  const dynamic_batcher_options options_;
  detail::request_queue<request> queue_;
  std::mutex answered_, ending_;
  std::condition_variable prepared_;
  std::size_t ready_ = 0;
  std::exception_ptr failed_;
  std::vector<std::thread> workers_;
};

}  // namespace ikebana
