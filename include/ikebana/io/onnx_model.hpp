#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/core/float16.hpp"
#include "ikebana/io/file.hpp"
#include "ikebana/io/posix_file.hpp"
#include "ikebana/io/protobuf.hpp"

// ONNX files (https://github.com/onnx/onnx/blob/main/docs/IR.md) as data: as much of onnx.proto as
// networks of one graph need.
namespace ikebana::detail {

/// TensorProto.DataType.
enum class onnx_type : int {
  none = 0,
  float32 = 1,
  uint8 = 2,
  int8 = 3,
  int32 = 6,
  int64 = 7,
  boolean = 9,
  float16 = 10,
  float64 = 11
};

struct onnx_tensor {
  std::string name;
  onnx_type type = onnx_type::none;
  std::vector<std::int64_t> dims;
  std::string_view data;  ///< Memory of another; empty if the tensor owns its elements.
  std::string own;

  /// The elements, little-endian.
  std::string_view bytes() const { return own.empty() ? data : own; }
  /// At most 2^56, as `parse_onnx` ensures.
  std::int64_t size() const {
    std::int64_t n = 1;
    for (std::int64_t d : dims) n *= d;
    return n;
  }
};

struct onnx_attribute {
  enum kinds { real = 1, integer = 2, text = 3, tensor = 4, reals = 6, integers = 7, texts = 8 };

  std::string name;
  int kind = integer;
  double f = 0;
  std::int64_t i = 0;
  std::string s;
  std::vector<float> floats;
  std::vector<std::int64_t> ints;
  std::vector<std::string> strings;
  std::vector<onnx_tensor> tensors;

  onnx_attribute() = default;
  onnx_attribute(std::string_view n, std::int64_t v) : name{n}, i{v} {}
  onnx_attribute(std::string_view n, double v) : name{n}, kind{real}, f{v} {}
  onnx_attribute(std::string_view n, std::string_view v) : name{n}, kind{text}, s{v} {}
  // Else a literal could be a bool, and so an integer.
  onnx_attribute(std::string_view n, const char* v) : name{n}, kind{text}, s{v} {}
  onnx_attribute(std::string_view n, std::vector<std::int64_t> v)
      : name{n}, kind{integers}, ints{std::move(v)} {}
  onnx_attribute(std::string_view n, std::vector<std::string> v)
      : name{n}, kind{texts}, strings{std::move(v)} {}
};

struct onnx_node {
  std::string op, name, domain;
  std::vector<std::string> inputs, outputs;
  std::vector<onnx_attribute> attributes;
};

struct onnx_dim {
  std::int64_t value = -1;  ///< -1 if unknown.
  std::string parameter;    ///< The name of an unknown one.
};

struct onnx_value {
  std::string name;
  onnx_type type = onnx_type::none;
  std::vector<onnx_dim> dims;
};

struct onnx_model {
  std::int64_t opset = 0;
  std::string producer, graph_name;
  std::vector<onnx_node> nodes;
  std::vector<onnx_tensor> initializers;
  std::vector<onnx_value> inputs, outputs;
  std::string file;  ///< The memory of tensors that were read.
};

// ---- writing ----

template <class = void>
protobuf_message message_of(const onnx_attribute& a) {
  protobuf_message m;
  m.add(1, a.name);
  if (a.kind == onnx_attribute::real) m.add(2, static_cast<float>(a.f));
  if (a.kind == onnx_attribute::integer) m.add(3, a.i);
  if (a.kind == onnx_attribute::text) m.add(4, a.s);
  for (std::int64_t i : a.ints) m.add(8, i);
  for (const std::string& s : a.strings) m.add(9, s);
  m.add(20, std::int64_t{a.kind});
  return m;
}

template <class = void>
protobuf_message message_of(const onnx_node& n) {
  protobuf_message m;
  for (const std::string& s : n.inputs) m.add(1, s);
  for (const std::string& s : n.outputs) m.add(2, s);
  m.add(3, n.name);
  m.add(4, n.op);
  for (const onnx_attribute& a : n.attributes) m.add(5, message_of(a));
  return m;
}

template <class = void>
protobuf_message message_of(const onnx_value& v) {
  protobuf_message dims, tensor, type, m;
  for (const onnx_dim& d : v.dims) {
    protobuf_message dim;
    if (d.value >= 0)
      dim.add(1, d.value);
    else
      dim.add(2, d.parameter);
    dims.add(1, dim);
  }
  tensor.add(1, static_cast<std::int64_t>(v.type));
  tensor.add(2, dims);
  type.add(1, tensor);
  m.add(1, v.name);
  m.add(2, type);
  return m;
}

/// All fields of a tensor but its elements, whose key and length are last.
template <class = void>
protobuf_message head_of(const onnx_tensor& t) {
  protobuf_message m;
  for (std::int64_t d : t.dims) m.add(1, d);
  m.add(2, static_cast<std::int64_t>(t.type));
  m.add(8, t.name);
  m.begin(9, t.bytes().size());
  return m;
}

/// Writes an ONNX file, which appears completely or not at all. Copies no tensor. Throws io_error,
/// also if the file would have 2 GiB or more, the limit of Protocol Buffers.
template <class = void>
void write_onnx(const onnx_model& model, const std::filesystem::path& path) {
  protobuf_message graph, values;
  for (const onnx_node& n : model.nodes) graph.add(1, message_of(n));
  graph.add(2, model.graph_name);
  for (const onnx_value& v : model.inputs) values.add(11, message_of(v));
  for (const onnx_value& v : model.outputs) values.add(12, message_of(v));
  std::vector<std::string> heads;
  std::uint64_t size = graph.bytes().size() + values.bytes().size();
  for (const onnx_tensor& t : model.initializers) {
    const protobuf_message fields = head_of(t);
    protobuf_message field;
    field.begin(5, fields.bytes().size() + t.bytes().size());
    heads.push_back(field.bytes() + fields.bytes());
    size += heads.back().size() + t.bytes().size();
  }
  protobuf_message opset, head;
  opset.add(1, std::string_view{});
  opset.add(2, model.opset);
  head.add(1, std::int64_t{8});  // ir_version of ONNX 1.12, the first with opset 17
  head.add(2, model.producer);
  head.add(8, opset);
  head.begin(7, size);
  if (size + head.bytes().size() > std::numeric_limits<std::int32_t>::max())
    fail_io(path.string(), "would have more than 2 GiB, which ONNX files do not");
  atomic_file file(path);
  const auto write = [&file](std::string_view bytes) {
    file.write(std::as_bytes(std::span(bytes)));
  };
  write(head.bytes());
  write(graph.bytes());
  for (std::size_t i = 0; i < heads.size(); ++i) {
    write(heads[i]);
    write(model.initializers[i].bytes());
  }
  write(values.bytes());
  file.commit();
}

// ---- reading ----

inline constexpr std::int64_t onnx_size_limit = std::int64_t{1} << 56;

/// Elements as little-endian bytes of type T, converted from what the file stores.
template <class T, class From>
std::string onnx_bytes(const std::vector<From>& from) {
  std::string bytes(from.size() * sizeof(T), '\0');
  for (std::size_t i = 0; i < from.size(); ++i) {
    const T x = static_cast<T>(from[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &x, sizeof(T));
  }
  return bytes;
}

template <class = void>
onnx_tensor parse_onnx_tensor(const std::string& where, std::string_view bytes) {
  onnx_tensor t;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<std::int64_t> words, longs;
  bool is_raw = false;
  for (protobuf_reader r(where, bytes); r.next();) {
    switch (r.field()) {
      case 1:
        r.append_to(t.dims);
        break;
      case 2:
        t.type = static_cast<onnx_type>(r.integer() > 100 ? 100 : r.integer());
        break;
      case 4:
        r.append_to(floats);
        break;
      case 5:
        r.append_to(words);
        break;
      case 7:
        r.append_to(longs);
        break;
      case 8:
        t.name = r.bytes();
        break;
      case 9:
        t.data = r.bytes(), is_raw = true;
        break;
      case 10:
        r.append_to(doubles);
        break;
      case 14:
        if (r.integer() != 0)
          fail_io(where, "keeps the tensor " + in_quotes(t.name) +
                             " in another file; save it as one file");
        break;
      default:
        break;
    }
  }
  std::int64_t size = 1;
  for (std::int64_t d : t.dims) {
    if (d < 0 || (d > 0 && size > onnx_size_limit / d))
      fail_io(where, "the tensor " + in_quotes(t.name) + " has no size");
    size *= d;
  }
  std::int64_t width = 0;
  switch (t.type) {
    case onnx_type::float32:
      width = 4;
      if (!is_raw) t.own = onnx_bytes<float>(floats);
      break;
    case onnx_type::float64:
      width = 8;
      if (!is_raw) t.own = onnx_bytes<double>(doubles);
      break;
    case onnx_type::int64:
      width = 8;
      if (!is_raw) t.own = onnx_bytes<std::int64_t>(longs);
      break;
    case onnx_type::int32:
      width = 4;
      if (!is_raw) t.own = onnx_bytes<std::int32_t>(words);
      break;
    case onnx_type::float16:
      width = 2;
      if (!is_raw) t.own = onnx_bytes<std::uint16_t>(words);
      break;
    case onnx_type::boolean:
    case onnx_type::int8:
    case onnx_type::uint8:
      width = 1;
      if (!is_raw) t.own = onnx_bytes<std::uint8_t>(words);
      break;
    default:
      fail_io(where, "the tensor " + in_quotes(t.name) + " has elements of the type " +
                         std::to_string(static_cast<int>(t.type)) + ", which is not read");
  }
  const std::size_t given = is_raw ? t.data.size() : t.own.size();
  if (given != static_cast<std::uint64_t>(size * width))
    fail_io(where, "the tensor " + in_quotes(t.name) + " has " + std::to_string(size) +
                       " elements of " + std::to_string(width) + " bytes, but " +
                       std::to_string(given) + " bytes");
  return t;
}

template <class = void>
onnx_attribute parse_onnx_attribute(const std::string& where, std::string_view bytes) {
  onnx_attribute a;
  a.kind = 0;
  for (protobuf_reader r(where, bytes); r.next();) {
    switch (r.field()) {
      case 1:
        a.name = r.bytes();
        break;
      case 2:
        a.f = static_cast<double>(r.real());
        break;
      case 3:
        a.i = r.integer();
        break;
      case 4:
        a.s = r.bytes();
        break;
      case 5:
        a.tensors.push_back(parse_onnx_tensor(where, r.bytes()));
        break;
      case 7:
        r.append_to(a.floats);
        break;
      case 8:
        r.append_to(a.ints);
        break;
      case 9:
        a.strings.emplace_back(r.bytes());
        break;
      case 20:
        a.kind = static_cast<int>(r.integer() & 0xff);
        break;
      default:
        break;
    }
  }
  return a;
}

template <class = void>
onnx_node parse_onnx_node(const std::string& where, std::string_view bytes) {
  onnx_node n;
  for (protobuf_reader r(where, bytes); r.next();) {
    switch (r.field()) {
      case 1:
        n.inputs.emplace_back(r.bytes());
        break;
      case 2:
        n.outputs.emplace_back(r.bytes());
        break;
      case 3:
        n.name = r.bytes();
        break;
      case 4:
        n.op = r.bytes();
        break;
      case 5:
        n.attributes.push_back(parse_onnx_attribute(where, r.bytes()));
        break;
      case 7:
        n.domain = r.bytes();
        break;
      default:
        break;
    }
  }
  return n;
}

template <class = void>
onnx_value parse_onnx_value(const std::string& where, std::string_view bytes) {
  onnx_value v;
  for (protobuf_reader r(where, bytes); r.next();) {
    if (r.field() == 1) v.name = r.bytes();
    if (r.field() != 2) continue;
    for (protobuf_reader type(where, r.bytes()); type.next();) {
      if (type.field() != 1) continue;
      for (protobuf_reader tensor(where, type.bytes()); tensor.next();) {
        if (tensor.field() == 1) v.type = static_cast<onnx_type>(tensor.integer() & 0xff);
        if (tensor.field() != 2) continue;
        for (protobuf_reader dims(where, tensor.bytes()); dims.next();) {
          if (dims.field() != 1) continue;
          onnx_dim d;
          for (protobuf_reader dim(where, dims.bytes()); dim.next();) {
            if (dim.field() == 1) d.value = dim.integer();
            if (dim.field() == 2) d.parameter = dim.bytes();
          }
          if (d.value < -1 || d.value > onnx_size_limit)
            fail_io(where, in_quotes(v.name) + " has an extent of " + std::to_string(d.value));
          v.dims.push_back(d);
        }
      }
    }
  }
  return v;
}

/// The contents of an ONNX file. Trusts nothing: whatever the bytes are, the result is a model
/// whose tensors have the bytes that their shapes say, or an io_error. Allocates a few times their
/// number.
template <class = void>
onnx_model parse_onnx(const std::string& where, std::string bytes) {
  onnx_model m;
  m.file = std::move(bytes);
  bool has_graph = false;
  for (protobuf_reader r(where, m.file); r.next();) {
    if (r.field() == 2) m.producer = r.bytes();
    if (r.field() == 8) {
      std::string_view domain;
      std::int64_t version = 0;
      for (protobuf_reader set(where, r.bytes()); set.next();) {
        if (set.field() == 1) domain = set.bytes();
        if (set.field() == 2) version = set.integer();
      }
      if (domain.empty() || domain == "ai.onnx") m.opset = version;
    }
    if (r.field() != 7) continue;
    has_graph = true;
    for (protobuf_reader g(where, r.bytes()); g.next();) {
      switch (g.field()) {
        case 1:
          m.nodes.push_back(parse_onnx_node(where, g.bytes()));
          break;
        case 2:
          m.graph_name = g.bytes();
          break;
        case 5:
          m.initializers.push_back(parse_onnx_tensor(where, g.bytes()));
          break;
        case 11:
          m.inputs.push_back(parse_onnx_value(where, g.bytes()));
          break;
        case 12:
          m.outputs.push_back(parse_onnx_value(where, g.bytes()));
          break;
        default:
          break;
      }
    }
  }
  if (!has_graph) fail_io(where, "is not an ONNX file: it has no graph");
  return m;
}

}  // namespace ikebana::detail
