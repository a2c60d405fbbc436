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
#include <type_traits>
#include <vector>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/io/safetensors.hpp"

namespace {

namespace ike = ikebana;
using ike::dtype;

bool is_half(dtype t) { return t == dtype::bfloat16 || t == dtype::float16; }

/// Calls f with the elements of a tensor of floating-point numbers or bytes.
template <class F>
void with_elements(const ike::state_dict::entry& e, F f) {
  const auto of = [&]<class T>(std::type_identity<T>) {
    const auto* const at = reinterpret_cast<const T*>(e.bytes.data());
    for (ike::dim_t i = 0; i < e.extents.numel(); ++i) f(at[i]);
  };
  switch (e.type) {
    case dtype::float64:
      return of(std::type_identity<double>{});
    case dtype::bfloat16:
      return of(std::type_identity<ike::bfloat16>{});
    case dtype::float16:
      return of(std::type_identity<ike::float16>{});
    case dtype::int8:
      return of(std::type_identity<std::int8_t>{});
    default:
      return of(std::type_identity<float>{});
  }
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

template <class... X>
std::string print(const char* format, X... x) {
  char text[64];
  std::snprintf(text, sizeof text, format, x...);
  return text;
}

/// The elements of a constant array; each tensor begins a cache line.
struct array {
  std::string text;
  ike::dim_t size = 0;

  void add(const std::string& element) {
    text += (size++ % 8 == 0 ? "\n      " : " ") + element + ",";
  }
  void fill(ike::dim_t line) {
    for (; size % line != 0; ++size) text += " 0,";
  }
  void write(const char* type, const char* name) const {
    std::printf("  alignas(64) static constexpr %s %s[] = {%s%s\n  };\n", type, name, text.c_str(),
                size == 0 ? "0" : "");
  }
};

struct options {
  std::string name = "embedded_weights";
  std::string weights = "stored";
  bool as_double = false;
};

/// The bits of x as a number of 16 bits.
std::uint16_t half(dtype t, double x, const std::string& of) {
  const auto number = static_cast<float>(x);
  if (t == dtype::bfloat16) return ike::bfloat16(number).bits;
  const ike::float16 h(number);
  if (!std::isfinite(static_cast<float>(h)))
    throw std::runtime_error(of + ": an element is beyond the largest float16, 65504");
  return h.bits;
}

/// Writes the header. Tensors of integers (counters of batches) are left out: a network does not
/// read them in evaluation.
void embed(const std::string& path, const options& o) {
  const ike::state_dict state = ike::detail::load_as_stored(path);
  array data, halves, bytes;
  std::string tensors;
  dtype kind = dtype::float32;
  for (const ike::state_dict::entry& e : state) {
    if (e.type == dtype::int64 || e.type == dtype::int32 || e.type == dtype::uint8) {
      std::fprintf(stderr, "%s: left out, for its elements are integers\n", e.name.c_str());
      continue;
    }
    if (e.uninitialized) throw std::runtime_error(e.name + ": has no elements yet");
    if (e.name.find_first_of("\"\\\n") != std::string::npos)
      throw std::runtime_error(e.name + ": a name with quotation marks, \\ or ends of lines");
    dtype type = e.type;
    if (type == dtype::int8) {
      if (o.weights != "stored" || o.as_double)
        throw std::runtime_error(e.name + ": bytes have no meaning but as they are stored");
    } else if (o.weights != "stored") {
      type = o.weights == "bfloat16"  ? dtype::bfloat16
             : o.weights == "float16" ? dtype::float16
                                      : dtype::float32;
    }
    // Biases keep the model's numbers.
    if (is_half(type) && e.extents.rank() < 2) type = dtype::float32;
    if (type == dtype::float64) type = dtype::float32;
    if (type != dtype::float32) {
      if (kind != dtype::float32 && kind != type)
        throw std::runtime_error(e.name + ": the file has weights of " +
                                 std::string(ike::name(kind)) + " and of " +
                                 std::string(ike::name(type)) + ": --weights chooses one");
      kind = type;
    }
    array& to = type == dtype::int8 ? bytes : is_half(type) ? halves : data;
    tensors += "      {\"" + e.name + "\", ikebana::shape" + list(e.extents) + ", " +
               std::to_string(to.size);
    if (type != dtype::float32) tensors += ", ikebana::dtype::" + std::string(ike::name(type));
    tensors += "},\n";
    with_elements(e, [&]<class T>(T element) {
      if constexpr (std::is_same_v<T, std::int8_t>) {
        to.add(std::to_string(element));
      } else {
        const double x{element};
        if (!std::isfinite(x)) throw std::runtime_error(e.name + ": an element is not finite");
        // Hexadecimal: the same bits for every compiler.
        to.add(is_half(type) ? print("0x%04x", unsigned{half(type, x, e.name)})
                             : print(o.as_double ? "%a" : "%af", x));
      }
    });
    to.fill(type == dtype::int8 ? 64 : is_half(type) ? 32 : o.as_double ? 8 : 16);
  }
  std::printf(
      "// Made by tools/embed of %s.\n#pragma once\n\n%s#include <ikebana/deploy/%s.hpp>\n\n"
      "struct %s {\n  using value_type = %s;\n",
      path.substr(path.find_last_of('/') + 1).c_str(),
      kind == dtype::float32 ? "" : "#include <cstdint>\n",
      kind == dtype::float32 ? "embedded" : "embedded_quantized", o.name.c_str(),
      o.as_double ? "double" : "float");
  data.write("value_type", "data");
  if (halves.size > 0) halves.write("std::uint16_t", "halves");
  if (bytes.size > 0) bytes.write("std::int8_t", "bytes");
  if (kind != dtype::float32 || state.is_folded())
    std::printf("  static constexpr bool is_folded = %s;\n", state.is_folded() ? "true" : "false");
  std::printf("  static constexpr ikebana::embedded_tensor tensors[] = {\n%s  };\n};\n",
              tensors.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  std::string path;
  options o;
  CLI::App app{"Writes the tensors of a safetensors file as a C++ header."};
  app.add_option("file", path, "a safetensors file")->required();
  app.add_option("--name", o.name, "the name of the struct")->capture_default_str();
  app.add_option("--weights", o.weights,
                 "what tensors of two dimensions and more become: numbers as they are stored, or "
                 "float, bfloat16 or float16")
      ->check(CLI::IsMember({"stored", "float", "bfloat16", "float16"}))
      ->capture_default_str();
  app.add_flag("--double", o.as_double, "elements of double instead of float");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!is_identifier(o.name)) throw std::runtime_error(o.name + ": not an identifier of C++");
    embed(path, o);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "embed: %s\n", e.what());
    return 1;
  }
  return 0;
}
