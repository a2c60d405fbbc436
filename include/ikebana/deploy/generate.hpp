#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

/// How generate chooses tokens; names and meaning are those of Hugging Face's transformers.
struct generate_options {
  dim_t max_new_tokens = 20;
  bool do_sample = false;     ///< Draws each token; otherwise takes the most probable one.
  double temperature = 1;     ///< Divides the logits before a draw.
  dim_t top_k = 0;            ///< Draws among the k most probable tokens; 0 for all.
  double top_p = 1;           ///< Draws among the fewest most probable tokens of this probability.
  dim_t num_beams = 1;        ///< Searches with this many sequences beside each other.
  double length_penalty = 1;  ///< Beams are compared by log probability / tokens^length_penalty.
  std::optional<std::int64_t> eos_token_id{};  ///< Ends a sequence, and is its last token.
  ikebana::seed seed{0};                       ///< Of the draws.
};

namespace detail {

template <class = void>
void check_generate(std::span<const std::int64_t> prompt, const generate_options& o) {
  const auto need = [](bool in_order, const char* what) {
    if (!in_order) throw_error(error(std::string("generate needs ") + what));
  };
  need(!prompt.empty(), "a prompt of at least one token");
  need(o.max_new_tokens >= 0, "max_new_tokens of at least 0");
  need(o.temperature > 0, "a temperature above 0");
  need(o.top_k >= 0, "top_k of at least 0");
  need(o.top_p > 0 && o.top_p <= 1, "top_p above 0 and at most 1");
  need(o.num_beams >= 1, "num_beams of at least 1");
  need(o.num_beams == 1 || !o.do_sample, "num_beams = 1 to sample");
}

/// Calls a network for the logits that follow sequences of tokens.
template <model_element E, class M, shape In>
class next_logits {
 public:
  using net_type = inference_model<E, M, In>;
  static_assert(In.rank() == 2 && (In[0] == 1 || In[0] == dynamic),
                "ikebana: generate needs a network of indices [1, L] or [dynamic, L]");
  /// Whether a call continues where the previous one ended.
  static constexpr bool is_stateful = [] {
    const auto& program = model<E, M, In>::lowered();
    for (const auto& node : program.nodes)
      if (node.role.is_stateful) return true;
    return false;
  }();
  static_assert(!is_stateful || In[1] == dynamic,
                "ikebana: generate needs a stateful network of sequences of any length: "
                "initialize<T, shape{1, dynamic}>(module, seed)");

  next_logits(const net_type& net, lane<E, M, In>& l) : net_{net}, lane_{l} {
    if (In[1] != dynamic) padded_.resize(static_cast<std::size_t>(In[1]));
  }

  void begin() {
    lane_.reset();
    seen_ = 0;
  }

  /// The logits after the last of these tokens, which begin with those of the previous call unless
  /// `begin` was called. Valid until the next call.
  auto operator()(std::span<const std::int64_t> tokens) {
    if constexpr (In[1] != dynamic) {
      const auto length = padded_.size();
      if (tokens.size() > length) tokens = tokens.last(length);
      std::fill(std::copy(tokens.begin(), tokens.end(), padded_.begin()), padded_.end(), 0);
      return row(padded_, tokens.size() - 1);
    } else {
      const auto fresh = is_stateful ? tokens.subspan(seen_) : tokens;
      seen_ = tokens.size();
      return row(fresh, fresh.size() - 1);
    }
  }

 private:
  auto row(std::span<const std::int64_t> tokens, std::size_t last) {
    const tensor_view<const std::int64_t, shape{1, In[1]}> x(
        tokens.data(), shape{1, static_cast<dim_t>(tokens.size())});
    const auto logits = net_(lane_, x);
    const auto symbols = static_cast<std::size_t>(logits.size()) / tokens.size();
    return std::span(logits.data() + last * symbols, symbols);
  }

  const net_type& net_;
  lane<E, M, In>& lane_;
  std::size_t seen_ = 0;
  std::vector<std::int64_t> padded_;
};

/// Chooses a token by its probability among those that the options leave.
class token_draw {
 public:
  explicit token_draw(const generate_options& o) : o_{o} {}

  template <class T>
  std::int64_t operator()(std::span<const T> logits, std::uint64_t step) {
    if (!o_.do_sample) return std::max_element(logits.begin(), logits.end()) - logits.begin();
    order_.resize(logits.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    std::size_t left = order_.size();
    if (o_.top_k > 0) left = std::min(left, static_cast<std::size_t>(o_.top_k));
    const auto weight = [&](std::size_t i) {
      return std::exp(
          (static_cast<double>(logits[order_[i]]) - static_cast<double>(logits[order_[0]])) /
          o_.temperature);
    };
    double sum = 0;
    for (std::size_t i = 0; i < left; ++i) sum += weight(i);
    if (o_.top_p < 1) {
      double kept = 0;
      std::size_t n = 0;
      while (n < left && kept < o_.top_p * sum) kept += weight(n++);
      left = n;
      sum = kept;
    }
    static constexpr std::uint64_t path = hash_path("generate");
    const auto word = random_stream{o_.seed, path, step}.words(0)[0];
    double rest = (static_cast<double>(word) + 0.5) * 0x1p-32 * sum;
    std::size_t i = 0;
    while (i + 1 < left && (rest -= weight(i)) > 0) ++i;
    return static_cast<std::int64_t>(order_[i]);
  }

 private:
  const generate_options& o_;
  std::vector<std::size_t> order_;
};

/// A sequence, and the logarithm of its probability after the prompt.
struct beam {
  std::vector<std::int64_t> tokens;
  double score = 0;
};

template <class Next>
std::vector<std::int64_t> search_beams(Next& next, std::span<const std::int64_t> prompt,
                                       const generate_options& o) {
  const auto width = static_cast<std::size_t>(o.num_beams);
  const auto value = [&](const beam& b) {
    const auto made = static_cast<double>(b.tokens.size() - prompt.size());
    return made > 0 ? b.score / std::pow(made, o.length_penalty) : 0.0;
  };
  const auto better = [](const auto& a, const auto& b) { return a.score > b.score; };
  std::vector<beam> live{{{prompt.begin(), prompt.end()}, 0}}, ended;
  struct candidate {
    double score;
    std::size_t from;
    std::int64_t token;
  };
  std::vector<candidate> all;
  for (dim_t step = 0; step < o.max_new_tokens && ended.size() < width && !live.empty(); ++step) {
    all.clear();
    for (std::size_t k = 0; k < live.size(); ++k) {
      next.begin();
      const auto logits = next(live[k].tokens);
      const double most = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
      double sum = 0;
      for (const auto x : logits) sum += std::exp(static_cast<double>(x) - most);
      for (std::size_t i = 0; i < logits.size(); ++i)
        all.push_back({live[k].score + static_cast<double>(logits[i]) - most - std::log(sum), k,
                       static_cast<std::int64_t>(i)});
    }
    std::stable_sort(all.begin(), all.end(), better);
    std::vector<beam> longer;
    for (std::size_t i = 0; i < all.size() && i < 2 * width && longer.size() < width; ++i) {
      beam b{live[all[i].from].tokens, all[i].score};
      b.tokens.push_back(all[i].token);
      const bool ends = o.eos_token_id && all[i].token == *o.eos_token_id;
      if (!ends)
        longer.push_back(std::move(b));
      else if (i < width)
        ended.push_back(std::move(b));
    }
    live = std::move(longer);
  }
  if (ended.size() < width) std::move(live.begin(), live.end(), std::back_inserter(ended));
  return std::max_element(ended.begin(), ended.end(),
                          [&](const beam& a, const beam& b) { return value(a) < value(b); })
      ->tokens;
}

}  // namespace detail

/// Continues a prompt with a network of indices [1, L] (or [dynamic, L]) -> logits [L, symbols] or
/// [1, L, symbols], whose prediction at a step depends on no later one. Returns the prompt and up
/// to max_new_tokens tokens: the most probable ones, drawn ones, or the best sequence of a beam
/// search.
///
///     const auto net = ike::freeze(model);
///     auto lane = net.lane(shape{1, 64});
///     const auto text = ike::generate(net, lane, prompt, {.do_sample = true, .top_k = 20});
///
/// A network with state, `causal_attention<.., kv_cache<1, 256>>` and `rotary_positions<..,
/// stateful<1>>`, is given each token once, and the lane is reset before. Another one, and every
/// beam, is given the whole sequence at each step; if L is a number, its last L tokens. Throws
/// error for invalid options, before anything has changed, and what the network throws: if the
/// sequence gets longer than a cache, or for a token that an embedding does not have. Allocates.
template <model_element E, class M, shape In>
std::vector<std::int64_t> generate(const inference_model<E, M, In>& net, lane<E, M, In>& l,
                                   std::span<const std::int64_t> prompt,
                                   const generate_options& options = {}) {
  detail::check_generate(prompt, options);
  detail::next_logits<E, M, In> next{net, l};
  if (options.num_beams > 1) return detail::search_beams(next, prompt, options);
  std::vector<std::int64_t> tokens(prompt.begin(), prompt.end());
  tokens.reserve(prompt.size() + static_cast<std::size_t>(options.max_new_tokens));
  detail::token_draw draw{options};
  next.begin();
  for (dim_t step = 0; step < options.max_new_tokens; ++step) {
    const auto logits = next(tokens);
    tokens.push_back(draw(std::span<const typename decltype(logits)::value_type>(logits),
                          static_cast<std::uint64_t>(step)));
    if (options.eos_token_id && tokens.back() == *options.eos_token_id) break;
  }
  return tokens;
}

namespace detail::misuse {
IKEBANA_MISUSE(generate_takes_a_frozen_model,
               "generate takes an inference_model, its lane and a prompt: auto net = "
               "freeze(model); auto lane = net.lane(); generate(net, lane, prompt)");
}  // namespace detail::misuse

template <class Net, class Lane, class... X>
requires(!requires {
  requires std::same_as<Lane, typename Net::lane_type>;
}) auto generate(const Net&, const Lane&, const X&...)
    -> decltype(detail::refuse_for<detail::misuse::generate_takes_a_frozen_model, Net>());

}  // namespace ikebana
