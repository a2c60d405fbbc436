// A transformer that learns to write like a text, character by character: like the headers of this
// library.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "examples/networks/language_model.hpp"
#include "ikebana/ikebana.hpp"

namespace ike = ikebana;
using ike::dynamic;
using ike::shape;

// Newline, and printable ASCII.
constexpr language_model::size sizes{
    .symbols = 96, .length = 48, .width = 64, .heads = 4, .inner = 128, .layers = 2};
constexpr auto network = language_model::network<sizes>(0.1);

using symbols = std::vector<std::int64_t>;

symbols symbols_of(const std::string& text) {
  symbols out;
  for (char c : text)
    if (c == '\n')
      out.push_back(0);
    else if (c >= ' ' && c <= '~')
      out.push_back(c - ' ' + 1);
  return out;
}

/// A file, or all files in a directory, by name.
std::string read(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files{path};
  if (std::filesystem::is_directory(path)) {
    files.clear();
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.is_regular_file()) files.push_back(entry.path());
    std::ranges::sort(files);
  }
  std::string text;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    text.append(std::istreambuf_iterator<char>(in), {});
  }
  return text;
}

char character_of(std::int64_t symbol) {
  return symbol == 0 ? '\n' : static_cast<char>(symbol - 1 + ' ');
}

/// Bits per character of `text` if characters were independent, with the frequencies of `known`.
double bits_by_frequency(const symbols& known, const symbols& text) {
  std::vector<double> count(sizes.symbols, 1);
  for (std::int64_t s : known) ++count[static_cast<std::size_t>(s)];
  double bits = 0;
  for (std::int64_t s : text)
    bits -= std::log2(count[static_cast<std::size_t>(s)] /
                      static_cast<double>(known.size() + count.size()));
  return bits / static_cast<double>(text.size());
}

using texts = ike::tensor<std::int64_t, shape{dynamic, dynamic}>;
using targets = ike::tensor<std::int64_t, shape{dynamic}>;

/// Row i of x is the text from first(i) on; t contains the next character at each position.
template <class First>
void cut(const symbols& text, First first, texts& x, targets& t) {
  const ike::dim_t length = x.extent(1);
  for (ike::dim_t i = 0; i < x.extent(0); ++i) {
    const auto at = text.begin() + first(i);
    std::copy_n(at, length, x.data() + i * length);
    std::copy_n(at + 1, length, t.data() + i * length);
  }
}

/// Bits per character that the model needs for a text, piece by piece.
template <class Model>
double bits_by(Model& model, const symbols& text) {
  const auto pieces = static_cast<ike::dim_t>(text.size() - 1) / sizes.length;
  texts x(shape{pieces, sizes.length});
  targets t(shape{pieces * sizes.length});
  cut(
      text, [](ike::dim_t i) { return i * sizes.length; }, x, t);
  model.eval();
  const double nats = static_cast<double>(ike::cross_entropy{}(model(x), t));
  model.train();
  return nats / std::numbers::ln2;
}

/// Continues `text`, drawing each character from the model's probabilities, sharpened.
template <class Model>
std::string write_on(Model& model, symbols text, int characters, double temperature) {
  std::mt19937 random(1);
  std::string written;
  model.eval();
  for (int k = 0; k < characters; ++k) {
    const auto length = std::min<ike::dim_t>(sizes.length, static_cast<ike::dim_t>(text.size()));
    const auto scores = model(ike::tensor_view<const std::int64_t, shape{1, dynamic}>(
        &*text.end() - length, shape{1, length}));
    const float* last = scores.data() + (length - 1) * sizes.symbols;
    const double most = static_cast<double>(*std::max_element(last, last + sizes.symbols));
    double shares[sizes.symbols], sum = 0;
    for (ike::dim_t s = 0; s < sizes.symbols; ++s)
      sum += shares[s] = std::exp((static_cast<double>(last[s]) - most) / temperature);
    double left = sum * static_cast<double>(random()) / 4294967296.0;
    std::int64_t next = 0;
    while (next + 1 < sizes.symbols && (left -= shares[next]) >= 0) ++next;
    text.push_back(next);
    written += character_of(next);
  }
  model.train();
  return written;
}

int main(int argc, char** argv) {
  std::string path = "include/ikebana/nn", prompt = "/// The ";
  int steps = 300, batch = 12, characters = 300;
  double lr = 3e-3, temperature = 0.7, required = 1e9;
  CLI::App app{"Learns a text character by character, and writes on."};
  app.add_option("--text", path, "what to learn: a file, or a directory of files; ASCII counts")
      ->capture_default_str();
  app.add_option("--steps", steps, "of training")->capture_default_str();
  app.add_option("--batch", batch, "pieces of the text per step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--lr", lr, "the highest learning rate of AdamW")->capture_default_str();
  app.add_option("--prompt", prompt, "what to write on from")->capture_default_str();
  app.add_option("--characters", characters, "how much to write")->capture_default_str();
  app.add_option("--temperature", temperature, "the lower, the less is dared")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--require", required,
                 "fail if the last loss, in bits per character, stays above this");
  CLI11_PARSE(app, argc, argv);
  try {
    const symbols all = symbols_of(read(path));
    if (all.size() < 20 * sizes.length || symbols_of(prompt).empty()) {
      std::fprintf(stderr, "%s: expected a text of at least %lld characters, and a prompt\n",
                   path.c_str(), static_cast<long long>(20 * sizes.length));
      return 2;
    }
    // The last tenth is held out for evaluation.
    const auto border = all.begin() + static_cast<std::ptrdiff_t>(all.size() * 9 / 10);
    const symbols text(all.begin(), border), unseen(border, all.end());

    // Number and length of texts are dynamic; every other extent follows from the embedding.
    auto model = ike::initialize<float, shape{dynamic, dynamic}>(network, ike::seed{1});
    std::cout << model.module() << "\n" << std::endl;
    auto optimizer = ike::adamw{model, {.lr = lr, .weight_decay = 1e-2}};
    std::mt19937 random(1);
    texts x(shape{batch, sizes.length});
    targets t(shape{batch * sizes.length});
    const auto places = text.size() - static_cast<std::size_t>(sizes.length);
    double sum = 0, bits = 0;
    int summed = 0;
    for (int step = 1; step <= steps; ++step) {
      const double done = (step - 1.0) / steps;
      optimizer.options().lr = lr * std::min(step / 20.0, 1.0) * (1 - 0.95 * done);
      cut(
          text, [&](ike::dim_t) { return static_cast<ike::dim_t>(random() % places); }, x, t);
      sum += static_cast<double>(model.train_step(x, t, ike::cross_entropy{}, optimizer));
      ++summed;
      if (step % 50 == 0 || step == steps) {
        bits = sum / summed / std::numbers::ln2;
        std::printf("step %4d  %.3f bits per character, on text never seen %.3f\n", step, bits,
                    bits_by(model, unseen));
        std::fflush(stdout);
        sum = summed = 0;
      }
    }
    std::printf("by frequencies alone it were %.3f, on text never seen %.3f\n",
                bits_by_frequency(text, text), bits_by_frequency(text, unseen));
    std::printf("\n%s%s\n", prompt.c_str(),
                write_on(model, symbols_of(prompt), characters, temperature).c_str());
    return bits <= required ? 0 : 1;
  } catch (const ike::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
