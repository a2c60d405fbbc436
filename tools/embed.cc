// Writes the tensors of a safetensors file as a C++ header with constant arrays, which
// ikebana::freeze reads in place: embed --name amplifier_weights amplifier.safetensors >
// weights.hpp

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "ikebana/io/safetensors.hpp"

namespace {

namespace ike = ikebana;

/// The elements of a floating-point tensor.
std::vector<double> elements(const ike::state_dict::entry& e) {
  const auto of = [&]<class T>(T) {
    const auto* const at = reinterpret_cast<const T*>(e.bytes.data());
    return std::vector<double>(at, at + e.extents.numel());
  };
  return e.type == ike::dtype::float64 ? of(0.0) : of(0.f);
}

std::string list(const ike::shape& s) {
  std::string text = "{";
  for (std::size_t d = 0; d < s.rank(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(s[d]);
  return text + "}";
}

bool is_identifier(const std::string& s) {
  return !s.empty() && std::isdigit(static_cast<unsigned char>(s[0])) == 0 &&
         std::all_of(s.begin(), s.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

/// Writes the header. Tensors of integers (counters of batches) are left out: a network does not
/// read them in evaluation.
void embed(const std::string& path, const std::string& name, bool as_double) {
  const ike::state_dict state = ike::load(path);
  const ike::dim_t line = as_double ? 8 : 16;  // 64 bytes: each tensor begins a cache line.
  ike::dim_t offset = 0;
  std::string tensors;
  std::printf(
      "// Made by tools/embed of %s.\n#pragma once\n\n#include <ikebana/deploy/embedded.hpp>\n\n"
      "struct %s {\n  using value_type = %s;\n  alignas(64) static constexpr value_type data[] = {",
      path.substr(path.find_last_of('/') + 1).c_str(), name.c_str(),
      as_double ? "double" : "float");
  for (const ike::state_dict::entry& e : state) {
    if (e.type != ike::dtype::float32 && e.type != ike::dtype::float64) {
      std::fprintf(stderr, "%s: left out, for its elements are integers\n", e.name.c_str());
      continue;
    }
    if (e.uninitialized) throw std::runtime_error(e.name + ": has no elements yet");
    if (e.name.find_first_of("\"\\\n") != std::string::npos)
      throw std::runtime_error(e.name + ": a name with quotation marks, \\ or ends of lines");
    tensors += "      {\"" + e.name + "\", ikebana::shape" + list(e.extents) + ", " +
               std::to_string(offset) + "},\n";
    ike::dim_t i = 0;
    for (const double x : elements(e)) {
      if (!std::isfinite(x)) throw std::runtime_error(e.name + ": an element is not finite");
      // Hexadecimal: the same bits for every compiler.
      std::printf("%s%a%s,", i++ % 8 == 0 ? "\n      " : " ", x, as_double ? "" : "f");
    }
    for (; i % line != 0; ++i) std::printf(" 0,");
    offset += i;
  }
  std::printf("%s\n  };\n  static constexpr ikebana::embedded_tensor tensors[] = {\n%s  };\n};\n",
              offset == 0 ? "0" : "", tensors.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  std::string path, name = "embedded_weights";
  bool as_double = false;
  CLI::App app{"Writes the tensors of a safetensors file as a C++ header."};
  app.add_option("file", path, "a safetensors file")->required();
  app.add_option("--name", name, "the name of the struct")->capture_default_str();
  app.add_flag("--double", as_double, "elements of double instead of float");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!is_identifier(name)) throw std::runtime_error(name + ": not an identifier of C++");
    embed(path, name, as_double);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "embed: %s\n", e.what());
    return 1;
  }
  return 0;
}
