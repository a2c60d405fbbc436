// Tags each character of lines of C++ as code or comment. The lines are a dataset of one's own,
// read by a thread and padded to the longest of each batch.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <ikebana/ikebana.hpp>
#include <ikebana/io.hpp>
#include <ikebana/ops.hpp>
#include <string>
#include <tuple>
#include <vector>

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

struct lines {
  std::vector<std::string> text;
  explicit lines(std::ifstream file) {
    for (std::string line; std::getline(file, line);) text.push_back(line + '\n');
  }
  ike::dim_t size() const { return static_cast<ike::dim_t>(text.size()); }
  auto sample(ike::dim_t i) const {  // characters, their number, tags
    const std::string& line = text[static_cast<std::size_t>(i)];
    const auto comment = static_cast<ike::dim_t>(std::min(line.find("//"), line.size()));
    const auto n = static_cast<ike::dim_t>(line.size());
    ike::tensor<std::int64_t, shape{ike::dynamic}> characters(shape{n}), tags(shape{n});
    for (ike::dim_t k = 0; k < n; ++k) {
      characters[k] = line[static_cast<std::size_t>(k)] & 127;
      tags[k] = k >= comment;
    }
    return std::tuple(std::move(characters), n, std::move(tags));
  }
};

constexpr auto tagger = ike::graph<"text", "lengths">([](auto text, auto l) {
  auto x = "characters"_m(ike::embedding<128, 12>{}, text);  // [N, longest, 12]
  auto [h, last, cell] = "lstm"_m(
      ike::lazy_lstm<9, ike::bidirectional<true>, ike::batch_first<true>, ike::packed<true>>{}, x,
      l);
  return ike::reshape<-1, 2>("head"_m(ike::lazy_linear<2>{}, h));
});

int main() {
  const lines data(std::ifstream("include/ikebana/nn/pool.hpp"));
  // Cross entropy ignores the target -100.
  ike::data_loader loader{data, {.batch = 16, .shuffle = ike::seed{1}, .padding = {0, 0, -100}}};
  auto model = ike::initialize<float, shape{ike::dynamic, ike::dynamic}, shape{ike::dynamic}>(
      tagger, ike::seed{1});
  ike::adam optimizer{model, {.lr = 1e-2}};
  ike::running_mean loss;
  for (int epoch = 0; epoch < 12; ++epoch, std::printf("loss %.3f\n", loss.value()))
    for (loss.reset(); auto [text, lengths, tags] : loader)
      loss.add(static_cast<double>(model.train_step(ike::inputs(text, lengths),
                                                    ike::reshape<shape{ike::dynamic}>(tags),
                                                    ike::cross_entropy{}, optimizer)));
  return loss.value() < 0.1 ? 0 : 1;
}
