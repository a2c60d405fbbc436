#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> blocks_of_code(const std::string& page) {
  std::vector<std::string> blocks;
  const std::string open = "```cpp\n", close = "```";
  for (std::size_t at = page.find(open); at != std::string::npos; at = page.find(open, at)) {
    at += open.size();
    const std::size_t end = page.find(close, at);
    blocks.push_back(page.substr(at, end - at));
    at = end;
  }
  return blocks;
}

/// Documents include headers as a user would; the examples include those of this tree.
bool is_prologue(const std::string& block) { return block.rfind("#include <ikebana/", 0) == 0; }

}  // namespace

TEST_CASE("code in the documentation is code of an example, to the letter") {
  std::string examples;
  for (const auto& entry : fs::directory_iterator("examples"))
    if (entry.path().extension() == ".cc") examples += read(entry.path());
  REQUIRE(!examples.empty());
  std::vector<fs::path> pages{"README.md"};
  for (const auto& entry : fs::directory_iterator("docs"))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  REQUIRE(pages.size() >= 3);
  std::size_t checked = 0;
  for (const auto& page : pages)
    for (const std::string& block : blocks_of_code(read(page))) {
      if (is_prologue(block)) continue;
      CAPTURE(page.string());
      CAPTURE(block);
      CHECK(examples.find(block) != std::string::npos);
      ++checked;
    }
  CHECK(checked >= 6);
}

TEST_CASE("each test that the documentation names is there") {
  std::size_t named = 0;
  for (const auto& entry : fs::directory_iterator("docs")) {
    if (entry.path().extension() != ".md") continue;
    const std::string page = read(entry.path());
    const std::string open = "`test/";
    for (std::size_t at = page.find(open); at != std::string::npos; at = page.find(open, at)) {
      const std::size_t end = page.find('`', ++at);
      const std::string cited = page.substr(at, end - at);
      at = end;
      if (cited.find(".cc") == std::string::npos) continue;
      CAPTURE(entry.path().string());
      CAPTURE(cited);
      const std::size_t colon = cited.find(": ");
      const std::string source = read(cited.substr(0, colon));
      CHECK(!source.empty());
      if (colon != std::string::npos) {
        const std::string name = "(\"" + cited.substr(colon + 2) + "\"";
        CHECK((source.find("TEST_CASE" + name + ")") != std::string::npos ||
               source.find("TEST_CASE_TEMPLATE" + name + ",") != std::string::npos));
      }
      ++named;
    }
  }
  CHECK(named >= 100);
}

TEST_CASE("each whole program has at most 60 lines") {
  const std::string page = read("docs/training.md");
  const std::size_t first = page.find("## Whole programs");
  REQUIRE(first != std::string::npos);
  std::size_t programs = 0;
  const std::string open = "(../examples/";
  for (std::size_t at = page.find(open, first); at != std::string::npos; at = page.find(open, at)) {
    at += open.size();
    const std::string name = page.substr(at, page.find(')', at) - at);
    const std::string source = read("examples/" + name);
    CAPTURE(name);
    CHECK(!source.empty());
    CHECK(std::count(source.begin(), source.end(), '\n') <= 60);
    ++programs;
  }
  CHECK(programs >= 12);
}
