// A transformer in the style of GPT as formulas, attention included, learns to write C++. Plots to
// the file that the command line names.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <vector>

#include "ikebana/deploy.hpp"
#include "ikebana/ikebana.hpp"
#include "ikebana/ops.hpp"
#include "ikebana/train/plot.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;
constexpr ike::dim_t length = 32, width = 48, heads = 4, symbols = 96, batch = 16;
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
  std::vector<std::int64_t> text;
  std::ifstream file("include/ikebana/nn/pool.hpp");
  for (char c; file.get(c);) text.push_back(c >= ' ' && c <= '~' ? c - ' ' + 1 : 0);
  const auto all = ike::as_tensor<shape{ike::dynamic}>(text);
  auto model = ike::initialize<float, shape{ike::dynamic, length}>(gpt, ike::seed{1});
  ike::adamw optimizer{model, {.lr = 3e-3f}};
  std::vector<double> losses;
  for (ike::dim_t step = 0; step < 300; ++step) {
    const ike::dim_t at = step * 617 % (all.size() - batch * length);
    const auto x = ike::reshape<shape{batch, length}>(ike::slice(all, at, at + batch * length));
    const auto next = ike::slice(all, at + 1, at + 1 + batch * length);
    losses.push_back(model.train_step(x, next, ike::cross_entropy{}, optimizer));
  }
  if (argc > 1) ike::plot{}.curves({.x_label = "step"}, {{"loss", losses}}).save(argv[1]);
  const auto net = ike::freeze(model);
  auto lane = net.lane(shape{1, length});
  const std::vector<std::int64_t> prompt(text.begin(), text.begin() + 16);
  for (const std::int64_t token :
       ike::generate(net, lane, prompt, {.max_new_tokens = 100, .do_sample = true, .top_k = 5}))
    std::putchar(token == 0 ? '\n' : static_cast<char>(token - 1 + ' '));
  return losses.back() < 1.9 ? 0 : 1;
}
