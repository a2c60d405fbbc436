#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
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

bool is_letter(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; }

/// The word of `text` that begins at `at`.
std::string word_at(const std::string& text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_letter(text[end])) ++end;
  return text.substr(at, end - at);
}

std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> words;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!is_letter(text[at])) continue;
    const std::string word = word_at(text, at);
    words.insert(word);
    at += word.size();
    // `max_pool1d/2d/3d` is three names.
    if (word.size() > 2 && word.ends_with("1d") && text.compare(at, 6, "/2d/3d") == 0)
      for (const char* d : {"2d", "3d"}) words.insert(word.substr(0, word.size() - 2) + d);
  }
  return words;
}

/// The words that a page sets as code.
std::set<std::string> code_of(const std::string& page) {
  std::string code;
  for (const std::string& block : blocks_of_code(page)) code += block;
  std::size_t at = 0;
  while ((at = page.find('`', at)) != std::string::npos) {
    const std::size_t end = page.find('`', at + 1);
    if (end == std::string::npos) break;
    if (end > at + 1) code += ' ' + page.substr(at + 1, end - at - 1) + ' ';
    at = end + 1;
  }
  return words_of(code);
}

/// C++ without comments, text in quotes and directives.
std::string without_text(const std::string& source) {
  std::string code;
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source.compare(at, 2, "//") == 0 || source[at] == '#') {
      at = std::min(source.find('\n', at), source.size());
    } else if (source[at] == '"') {
      while (source[++at] != '"')
        if (source[at] == '\\') ++at;
    } else {
      code += source[at];
    }
  }
  return code;
}

/// The names that a program takes from Ikebana: after ike:: and, as members, after a dot or an
/// arrow.
std::set<std::string> names_used(const std::string& program) {
  const std::string code = without_text(program);
  std::set<std::string> names;
  std::size_t at = 0;
  while (at < code.size()) {
    if (is_letter(code[at])) {
      const std::string word = word_at(code, at);
      at += word.size();
      if (word != "ike") continue;
      while (code.compare(at, 2, "::") == 0) {
        const std::string name = word_at(code, at + 2);
        names.insert(name);
        at += 2 + name.size();
      }
      continue;
    }
    const bool is_arrow = code.compare(at, 2, "->") == 0, is_dot = code[at] == '.';
    at += is_arrow ? 2 : 1;
    if ((is_arrow || is_dot) && at < code.size() && is_letter(code[at]) &&
        std::isdigit(static_cast<unsigned char>(code[at])) == 0)
      names.insert(word_at(code, at));
  }
  return names;
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

TEST_CASE("each whole program has at most 60 lines, and calls nothing that is undocumented") {
  const std::string page = read("docs/training.md");
  const std::size_t first = page.find("## Whole programs");
  REQUIRE(first != std::string::npos);
  // Errors and PyTorch's names do not tell how something is called.
  std::set<std::string> documented = code_of(read("README.md"));
  for (const auto& entry : fs::directory_iterator("docs"))
    if (entry.path().extension() == ".md" && entry.path().filename() != "errors.md" &&
        entry.path().filename() != "catalogue.md")
      documented.merge(code_of(read(entry.path())));
  REQUIRE(documented.size() > 500);
  std::set<std::string> others{"front", "find", "assign"};  // of the standard library
  others.merge(words_of(read("examples/cart_pole.hpp")));   // which is no part of Ikebana
  std::size_t programs = 0;
  const std::string open = "(../";
  for (std::size_t at = page.find(open, first); at != std::string::npos; at = page.find(open, at)) {
    at += open.size();
    const std::string name = page.substr(at, page.find(')', at) - at);
    if (!name.ends_with(".cc")) continue;
    const std::string source = read(name);
    CAPTURE(name);
    for (const std::string& used : names_used(source)) {
      CAPTURE(used);
      // `lazy_linear` is `linear` with a dimension left out, of whatever has one.
      const std::string of = used.starts_with("lazy_") ? used.substr(5) : used;
      CHECK((documented.count(used) + documented.count(of) + others.count(used) > 0));
    }
    CHECK(!source.empty());
    CHECK(std::count(source.begin(), source.end(), '\n') <= 60);
    ++programs;
  }
  CHECK(programs >= 12);
}
