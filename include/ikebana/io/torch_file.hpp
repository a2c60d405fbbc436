#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/io/file.hpp"
#include "ikebana/io/file_format.hpp"
#include "ikebana/io/pickle.hpp"
#include "ikebana/io/zip.hpp"
#include "ikebana/model/state_dict.hpp"

// Files of torch.save since PyTorch 1.6: a zip archive of a pickle, data.pkl, and of the elements
// of each storage, data/0, data/1, ... (torch/serialization.py, torch/_utils.py).
namespace ikebana {

namespace detail {

/// An element type of PyTorch, and what its elements are read as.
struct torch_type {
  std::string_view storage;  ///< The class of its storages.
  std::size_t size;
  dtype type;
  void (*convert)(const char* from, std::byte* to);
};

template <class T, class Stored>
void convert_element(const char* from, std::byte* to) {
  Stored stored;
  std::memcpy(&stored, from, sizeof stored);
  T value;
  if constexpr (std::is_integral_v<Stored>)
    value = static_cast<T>(stored);
  else
    value = static_cast<T>(static_cast<float>(stored));
  std::memcpy(to, &value, sizeof value);
}

inline constexpr std::array<torch_type, 10> torch_types{{
    {"torch FloatStorage", 4, dtype::float32, nullptr},
    {"torch DoubleStorage", 8, dtype::float64, nullptr},
    {"torch LongStorage", 8, dtype::int64, nullptr},
    {"torch IntStorage", 4, dtype::int32, nullptr},
    {"torch ByteStorage", 1, dtype::uint8, nullptr},
    {"torch BoolStorage", 1, dtype::uint8, nullptr},
    {"torch HalfStorage", 2, dtype::float32, &convert_element<float, float16>},
    {"torch BFloat16Storage", 2, dtype::float32, &convert_element<float, bfloat16>},
    {"torch ShortStorage", 2, dtype::int32, &convert_element<std::int32_t, std::int16_t>},
    {"torch CharStorage", 1, dtype::int32, &convert_element<std::int32_t, std::int8_t>},
}};

/// Makes a state dict of a pickle and the storages beside it.
template <class>
class basic_torch_reader {
 public:
  basic_torch_reader(const std::string& path, std::string_view archive)
      : path_{path}, archive_size_{archive.size()} {
    std::string_view pickle;
    const auto files = read_zip(path, archive);
    for (const zip_file& file : files) {
      const std::size_t at = file.name.find('/');
      if (at == std::string_view::npos || file.name.substr(at) != "/data.pkl") continue;
      folder_ = file.name.substr(0, at + 1);
      pickle = file.bytes;
    }
    if (folder_.empty())
      fail_io(path, "is a zip archive without data.pkl: expected a file of torch.save");
    for (const zip_file& file : files)
      if (file.name.starts_with(folder_))
        files_[std::string(file.name.substr(folder_.size()))] = file.bytes;
    if (const auto order = files_.find("byteorder");
        order != files_.end() && order->second != "little")
      fail_io(path, "was written on a big-endian machine");
    pickle_ = pickle;
  }

  state_dict read(std::string_view part) {
    basic_unpickler<void> values(path_, pickle_);
    values_ = &values;
    std::size_t at = values.run();
    if (!part.empty()) at = find(at, part);
    if (values[at].what != kind::dict)
      fail_io(path_, "holds " + describe(at) + "; expected a dict of tensors");
    state_dict dict;
    add_all(dict, at, "", 0);
    return dict;
  }

 private:
  using kind = pickle_value::kind;

  const pickle_value& value(std::size_t i) const { return (*values_)[i]; }

  std::string describe(std::size_t i) const {
    const pickle_value& v = value(i);
    switch (v.what) {
      case kind::none:
        return "None";
      case kind::boolean:
        return "a truth value";
      case kind::integer:
      case kind::real:
        return "a number";
      case kind::text:
        return "a text";
      case kind::tuple:
      case kind::list:
        return "a list";
      case kind::dict:
        return "a dict";
      case kind::global:
        return "a reference to " + in_quotes(v.text);
      case kind::call:
        return "an object of " + in_quotes(value(v.items[0]).text);
      case kind::persistent:
        return "a storage";
    }
    return {};
  }

  std::size_t find(std::size_t dict, std::string_view part) const {
    const auto& items = value(dict).items;
    if (value(dict).what == kind::dict)
      for (std::size_t i = 0; i < items.size(); i += 2)
        if (value(items[i]).what == kind::text && value(items[i]).text == part) return items[i + 1];
    fail_io(path_, "has no part " + in_quotes(part));
  }

  void add_all(state_dict& dict, std::size_t at, const std::string& prefix, int depth) {
    // Values may be shared, and a dict may contain itself.
    if (depth > 16) fail_io(path_, "has dicts that are nested more than 16 times");
    const auto& items = value(at).items;
    for (std::size_t i = 0; i < items.size(); i += 2) {
      const pickle_value& key = value(items[i]);
      if (++visits_ > pickle_.size()) fail_io(path_, "has a dict that contains itself");
      if (key.what != kind::text)
        fail_io(path_, "has a key in " + in_quotes(prefix) + " that is " + describe(items[i]));
      if (key.text.size() > 1000) fail_io(path_, "has a key of more than 1000 bytes");
      const std::string name = prefix + key.text;
      if (value(items[i + 1]).what == kind::dict)
        add_all(dict, items[i + 1], name + '.', depth + 1);
      else
        add(dict, name, items[i + 1]);
    }
  }

  /// The arguments of a call of this function, or null.
  const pickle_value* arguments_of(std::size_t i, std::string_view function) const {
    const pickle_value& v = value(i);
    if (v.what != kind::call || value(v.items[0]).text != function) return nullptr;
    return &value(v.items[1]);
  }

  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    fail_io(path_, in_quotes(name, 200) + ' ' + what);
  }

  std::int64_t integer(const std::string& name, std::size_t i) const {
    if (value(i).what != kind::integer || value(i).number < 0)
      fail(name, "has a size, stride or offset that is no number");
    return value(i).number;
  }

  void add(state_dict& dict, const std::string& name, std::size_t at) {
    // A parameter holds a tensor.
    if (const auto* p = arguments_of(at, "torch._utils _rebuild_parameter");
        p != nullptr && !p->items.empty())
      at = p->items[0];
    const pickle_value* const t = arguments_of(at, "torch._utils _rebuild_tensor_v2");
    if (t == nullptr || t->items.size() < 4)
      fail(name, "is " + describe(at) +
                     "; only tensors are read, load_torch(path, part) reads a part of the file");
    const pickle_value& storage = value(t->items[0]);
    const pickle_value* const id =
        storage.what == kind::persistent ? &value(storage.items[0]) : nullptr;
    if (id == nullptr || id->what != kind::tuple || id->items.size() < 3 ||
        value(id->items[2]).what != kind::text)
      fail(name, "has no storage");
    const torch_type* type = nullptr;
    for (const torch_type& one : torch_types)
      if (one.storage == value(id->items[1]).text) type = &one;
    if (type == nullptr)
      fail(name, "has elements of " + in_quotes(value(id->items[1]).text) +
                     "; floating numbers, integers and bool are read");
    const auto file = files_.find("data/" + value(id->items[2]).text);
    if (file == files_.end()) fail(name, "has a storage that is not in the archive");

    const auto available = static_cast<std::int64_t>(file->second.size() / type->size);
    const std::int64_t first = integer(name, t->items[1]);
    const pickle_value &sizes = value(t->items[2]), &strides = value(t->items[3]);
    if (sizes.what != kind::tuple || strides.what != kind::tuple ||
        sizes.items.size() != strides.items.size())
      fail(name, "has no sizes and strides");
    if (sizes.items.size() > shape::max_rank)
      fail(name, "has more than " + std::to_string(shape::max_rank) + " dimensions");
    shape extents;
    std::array<std::int64_t, shape::max_rank> step{};
    std::int64_t elements = 1, last = first;
    bool empty = false, beyond = false;
    for (std::size_t d = 0; d < sizes.items.size(); ++d) {
      const std::int64_t n = integer(name, sizes.items[d]);
      step[d] = integer(name, strides.items[d]);
      if (n > shape::max_elements) fail(name, "has an extent above 2^56");
      extents.push_back(n);
      empty = empty || n == 0;
      std::int64_t reach = 0;
      if (n == 0) continue;
      if (__builtin_mul_overflow(elements, n, &elements) || elements > shape::max_elements)
        fail(name, "has more than 2^56 elements");
      beyond = beyond || __builtin_mul_overflow(n - 1, step[d], &reach) ||
               __builtin_add_overflow(last, reach, &last);
    }
    if (!empty && (beyond || last >= available || elements > available))
      fail(name, "reaches beyond its storage, or repeats its elements");
    // A storage may be that of many tensors, but not of so many that memory runs out.
    if (!empty) bytes_ += static_cast<std::uint64_t>(elements) * size_of(type->type);
    if (bytes_ / 16 > archive_size_) fail(name, "and those before have too many elements");
    if (dict.contains(name)) fail(name, "is there twice");
    std::byte* const to = dict.add_owned(name, type->type, extents);
    if (!empty) copy(*type, file->second.data(), first, extents, step, to);
  }

  static void copy(const torch_type& type, const char* from, std::int64_t first,
                   const shape& extents, const std::array<std::int64_t, shape::max_rank>& step,
                   std::byte* to) {
    const std::size_t rank = extents.rank(), size = size_of(type.type);
    bool dense = type.convert == nullptr;
    dim_t expected = 1;
    for (std::size_t d = rank; d-- > 0; expected *= extents[d])
      dense = dense && (extents[d] == 1 || step[d] == expected);
    const dim_t n = extents.numel();
    if (dense) {
      std::memcpy(to, from + static_cast<std::size_t>(first) * size,
                  static_cast<std::size_t>(n) * size);
      return;
    }
    std::array<dim_t, shape::max_rank> index{};
    std::int64_t at = first;
    for (dim_t i = 0; i < n; ++i, to += size) {
      const char* const element = from + static_cast<std::size_t>(at) * type.size;
      if (type.convert != nullptr)
        type.convert(element, to);
      else
        std::memcpy(to, element, size);
      for (std::size_t d = rank; d-- > 0;) {
        at += step[d];
        if (++index[d] < extents[d]) break;
        at -= step[d] * extents[d];
        index[d] = 0;
      }
    }
  }

  const std::string& path_;
  std::size_t archive_size_;
  std::string_view pickle_;
  std::string folder_;
  std::unordered_map<std::string, std::string_view> files_;
  const basic_unpickler<void>* values_ = nullptr;
  std::size_t visits_ = 0;
  std::uint64_t bytes_ = 0;
};

template <class = void>
state_dict parse_torch(const std::string& path, std::string_view file, std::string_view part) {
  using namespace std::string_view_literals;
  if (!file.starts_with("PK\x03\x04"sv)) {
    const std::string format = describe_format(file.substr(0, 64));
    fail_io(path, "expected a file that torch.save wrote since PyTorch 1.6, got " +
                      (format.empty() ? "another" : format));
  }
  return basic_torch_reader<void>(path, file).read(part);
}

}  // namespace detail

/// Reads the tensors of a file that torch.save wrote (.pt, .pth): a state dict, or dicts of tensors
/// within each other, whose names are joined by points. `load_torch("checkpoint.pt", "model")`
/// reads one part of a dict that also holds other things. Nothing in the file is executed or
/// trusted: whatever is not a dict of dense tensors of numbers is an io_error that names it. Types
/// are converted as `load` does: float16 and bfloat16 to float, shorter integers to std::int32_t.
/// Allocates the file and the tensors; O(bytes).
inline state_dict load_torch(const std::filesystem::path& path, std::string_view part = {}) {
  const std::string file = detail::read_file(path.string());
  return detail::parse_torch(path.string(), file, part);
}

}  // namespace ikebana
