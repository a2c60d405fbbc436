#include "ikebana/train/progress.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace ike = ikebana;

namespace {

/// A file that is not a terminal, and what was written to it.
class capture {
 public:
  capture() : file_{std::tmpfile()} { REQUIRE(file_ != nullptr); }
  capture(const capture&) = delete;
  ~capture() { std::fclose(file_); }
  std::FILE* file() const { return file_; }
  std::string text() const {
    std::fflush(file_);
    std::rewind(file_);
    std::string s;
    for (int c; (c = std::fgetc(file_)) != EOF;) s += static_cast<char>(c);
    return s;
  }

 private:
  std::FILE* file_;
};

}  // namespace

TEST_CASE("where there is no terminal, a bar is one plain line at its end") {
  capture out;
  {
    ike::progress_bar bar(100, {.label = "epoch 1/2", .to = out.file(), .every_call = true});
    for (int i = 0; i < 10; ++i) {
      bar.set("loss", 0.5 - i * 0.01);
      bar.set("accuracy", 0.25);
      bar.advance(10);
    }
    CHECK(bar.done() == 100);
    CHECK(out.text().empty());
  }
  const std::string line = out.text();
  CHECK(line.starts_with("epoch 1/2  loss 0.4100  accuracy 0.2500  "));
  CHECK(line.find(" samples/s  ") != std::string::npos);
  CHECK(line.ends_with(" s\n"));
  CHECK(line.find('\r') == std::string::npos);
  CHECK(line.find('\x1b') == std::string::npos);
  CHECK(line.find('\n') == line.size() - 1);
}

TEST_CASE("a bar ends once, and one that is not enabled prints nothing") {
  capture out;
  {
    ike::progress_bar bar(3, {.to = out.file()});
    bar.advance(3);
    bar.finish();
    bar.finish();
    bar.advance(1);
  }
  const std::string text = out.text();
  CHECK(text.find('\n') == text.size() - 1);
  capture silent;
  { ike::progress_bar bar(3, {.to = silent.file(), .enabled = false}); }
  CHECK(silent.text().empty());
}

TEST_CASE("more metrics and longer labels than there is room for are cut, not harmful") {
  capture out;
  const std::string label(400, 'x');
  {
    ike::progress_bar bar(0, {.label = label, .to = out.file()});
    for (std::string_view name : {"a", "b", "c", "d", "e", "f", "g", "h"}) bar.set(name, 1e300);
    bar.advance(5);
  }
  CHECK(out.text().size() <= 257);
  CHECK(out.text().ends_with("\n"));
}

TEST_CASE("a range with a bar gives its elements, one advance for each") {
  capture out;
  const std::vector<int> numbers{3, 1, 4, 1, 5};
  int sum = 0;
  {
    auto range = ike::progress(numbers, {.label = "numbers", .to = out.file()});
    for (int n : range) sum += n;
    CHECK(range.bar().done() == 5);
  }
  CHECK(sum == 14);
  CHECK(out.text().starts_with("numbers"));
  // A temporary range lives during the loop, and may hold pairs.
  int pairs = 0;
  capture other;
  for (auto [a, b] :
       ike::progress(std::vector<std::pair<int, int>>{{1, 2}, {3, 4}}, {.to = other.file()}))
    pairs += a * b;
  CHECK(pairs == 14);
  CHECK_FALSE(other.text().empty());
}

TEST_CASE("elements of a range can be changed through the bar") {
  capture out;
  std::vector<int> numbers{1, 2, 3};
  for (int& n : ike::progress(numbers, {.to = out.file()})) n *= 2;
  CHECK(numbers == std::vector<int>{2, 4, 6});
}
