// A transformer in the style of GPT as formulas, attention included. It learns to write C++. The
// learning curve is drawn in the file that is named on the command line.

#include <cstdio>
#include <fstream>
#include <iterator>
#include <numbers>
#include <string>
#include <vector>

#include "ikebana/deploy.hpp"
#include "ikebana/ikebana.hpp"
#include "ikebana/ops.hpp"
#include "ikebana/train/plot.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;
constexpr ike::dim_t length = 32, width = 48, heads = 4, symbols = 96;

// Attention and a feed-forward part, each after a norm and with a skip connection.
constexpr auto block = ike::graph([](auto x) {  // [N, length, width]
  auto split = [](auto y) { return ike::reshape<-1, length, heads, width / heads>(y); };
  auto h = "norm1"_m(ike::layer_norm<shape{width}>{}, x);
  auto [q, k, v] = ike::chunk<3, -1>("in"_m(ike::lazy_linear<3 * width>{}, h));
  auto scores = ike::einsum<"nqhd,nkhd->nhqk">(split(q), split(k)) / 3.4641;  // sqrt(12)
  auto at = ike::arange_like<1>(x);
  auto weights = ike::softmax<>{}(scores + ike::where(at > ike::unsqueeze<1>(at), -1e9, 0));
  auto mixed = ike::reshape<-1, length, width>(ike::einsum<"nhqk,nkhd->nqhd">(weights, split(v)));
  auto y = x + "out"_m(ike::lazy_linear<width>{}, mixed);
  auto inner = "fc1"_m(ike::lazy_linear<96>{}, "norm2"_m(ike::layer_norm<shape{width}>{}, y));
  return y + "fc2"_m(ike::lazy_linear<width>{}, ike::gelu{}(inner));
});

constexpr auto gpt = ike::graph([](auto text) {  // indices [N, length] -> logits
  auto tokens = "tokens"_m(ike::embedding<symbols, width>{}, text);
  auto positions = ike::parameter<"positions", shape{length, width}>(tokens);
  auto h = "block2"_m(block, "block1"_m(block, tokens + positions));
  return ike::reshape<-1, symbols>("head"_m(ike::lazy_linear<symbols>{}, h));
});

int main(int argc, char** argv) {
  std::ifstream file("include/ikebana/nn/pool.hpp", std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto symbol = [&](std::size_t i) -> std::int64_t {
    return text[i] >= ' ' && text[i] <= '~' ? text[i] - ' ' + 1 : 0;
  };
  auto model = ike::initialize<float, shape{ike::dynamic, length}>(gpt, ike::seed{1});
  ike::adamw optimizer{model, {.lr = 3e-3f}};
  ike::tensor<std::int64_t, shape{16, length}> x;
  ike::tensor<std::int64_t, shape{16 * length}> next;
  std::vector<double> bits;
  for (std::size_t step = 0; step < 120; ++step) {
    for (std::size_t i = 0; i < 16 * length; ++i) {
      const std::size_t row = (step * 16 + i / length) * 617 % (text.size() - length - 1);
      x[static_cast<ike::dim_t>(i)] = symbol(row + i % length);
      next[static_cast<ike::dim_t>(i)] = symbol(row + i % length + 1);
    }
    const float loss = model.train_step(x, next, ike::cross_entropy{}, optimizer);
    const double now = static_cast<double>(loss) / std::numbers::ln2;
    bits.push_back(bits.empty() ? now : 0.9 * bits.back() + 0.1 * now);
  }
  std::printf("%.2f bits per character\n", bits.back());
  ike::plot figure;
  figure.curves({.title = "bits per character", .x_label = "step"}, {{"moving average", bits}});
  if (argc > 1) figure.save(argv[1]);

  const auto net = ike::freeze(model);
  auto lane = net.lane(shape{1, length});
  std::vector<std::int64_t> prompt;
  for (const char c : std::string("template <class T>")) prompt.push_back(c - ' ' + 1);
  for (const std::int64_t token :
       ike::generate(net, lane, prompt, {.max_new_tokens = 100, .do_sample = true, .top_k = 5}))
    std::putchar(token == 0 ? '\n' : static_cast<char>(token - 1 + ' '));
  std::putchar('\n');
  return bits.back() < 3.6 ? 0 : 1;
}
