// Translates an ONNX file into a header with a network as a type, and writes its weights as a
// safetensors file: onnx_import --weights spotter.safetensors spotter.onnx > spotter.hpp

#include "tools/onnx_import.hpp"

#include <CLI/CLI.hpp>
#include <cctype>
#include <cstdio>
#include <exception>
#include <string>

#include "ikebana/io/file.hpp"
#include "ikebana/io/safetensors.hpp"

int main(int argc, char** argv) {
  std::string path, name, weights;
  CLI::App app{"Translates an ONNX file into a header with a network, and its weights."};
  app.add_option("file", path, "an ONNX file")->required();
  app.add_option("--name", name, "the namespace of the header; the file's name if not given");
  app.add_option("--weights", weights, "the safetensors file to be written");
  CLI11_PARSE(app, argc, argv);
  try {
    if (name.empty()) {
      name = path.substr(path.find_last_of('/') + 1);
      name = name.substr(0, name.find('.'));
    }
    bool is_identifier = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0;
    for (const char c : name)
      is_identifier =
          is_identifier && (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_');
    if (!is_identifier) throw ikebana::error(name + ": not an identifier of C++; give --name");
    const onnx_import::result r =
        onnx_import::import_onnx(path, ikebana::detail::read_file(path), name);
    if (!weights.empty()) ikebana::save(r.weights, weights);
    std::fputs(r.header.c_str(), stdout);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "onnx_import: %s\n", e.what());
    return 1;
  }
  return 0;
}
