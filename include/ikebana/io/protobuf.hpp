#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "ikebana/io/file.hpp"

// The wire format of Protocol Buffers (https://protobuf.dev/programming-guides/encoding), as much
// of it as ONNX files need.
namespace ikebana::detail {

/// A message under construction: the fields in the order in which they are added.
class protobuf_message {
 public:
  void add(int field, std::int64_t value) {
    key(field, 0);
    varint(static_cast<std::uint64_t>(value));
  }
  void add(int field, float value) {
    key(field, 5);
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    bytes_.append(bytes, sizeof value);
  }
  void add(int field, std::string_view value) {
    begin(field, value.size());
    bytes_ += value;
  }
  void add(int field, const protobuf_message& value) { add(field, std::string_view{value.bytes_}); }
  /// The key and the length of a field whose bytes follow.
  void begin(int field, std::uint64_t size) {
    key(field, 2);
    varint(size);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, unsigned wire) { varint(static_cast<std::uint64_t>(field) << 3 | wire); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

/// Reads the fields of a message, one `next()` each. Trusts nothing: throws io_error for a field
/// that does not end within the message.
class protobuf_reader {
 public:
  protobuf_reader(const std::string& where, std::string_view bytes) : where_{where}, rest_{bytes} {}

  /// Advances to the next field; false at the end.
  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    wire_ = static_cast<unsigned>(key & 7);
    field_ = key >> 3 > 0x1fffffff ? 0 : static_cast<int>(key >> 3);
    if (field_ == 0) fail("a field without a number");
    bytes_ = {};
    value_ = 0;
    if (wire_ == 0) {
      value_ = varint();
    } else if (wire_ == 1 || wire_ == 5) {
      bytes_ = take(wire_ == 1 ? 8 : 4);
    } else if (wire_ == 2) {
      bytes_ = take(varint());
    } else {
      fail("a field of the unknown kind " + std::to_string(wire_));
    }
    return true;
  }
  int field() const { return field_; }

  std::int64_t integer() const {
    expect(0);
    return static_cast<std::int64_t>(value_);
  }
  float real() const {
    expect(5);
    float f = 0;
    std::memcpy(&f, bytes_.data(), sizeof f);
    return f;
  }
  std::string_view bytes() const {
    expect(2);
    return bytes_;
  }
  /// Appends the numbers of a repeated field, which are packed or one each.
  void append_to(std::vector<std::int64_t>& list) const {
    if (wire_ != 2) return list.push_back(integer());
    protobuf_reader packed(where_, bytes_);
    while (!packed.rest_.empty()) list.push_back(static_cast<std::int64_t>(packed.varint()));
  }
  template <class T>
  void append_to(std::vector<T>& list) const {
    if (wire_ != 2) expect(sizeof(T) == 4 ? 5 : 1);
    if (bytes_.size() % sizeof(T) != 0) fail("numbers that are cut off");
    const std::size_t n = list.size();
    list.resize(n + bytes_.size() / sizeof(T));
    if (!bytes_.empty()) std::memcpy(list.data() + n, bytes_.data(), bytes_.size());
  }
  [[noreturn]] void fail(const std::string& what) const {
    fail_io(where_, "is not an ONNX file: it has " + what);
  }

 private:
  void expect(unsigned wire) const {
    if (wire_ != wire)
      fail("field " + std::to_string(field_) + " of kind " + std::to_string(wire_) +
           "; expected kind " + std::to_string(wire));
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 10 && i < rest_.size(); ++i) {
      const auto byte = static_cast<unsigned char>(rest_[i]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << 7 * i;
      if (byte < 0x80) {
        rest_.remove_prefix(i + 1);
        return value;
      }
    }
    fail("a number that does not end");
  }
  std::string_view take(std::uint64_t size) {
    if (size > rest_.size())
      fail("a field of " + std::to_string(size) + " bytes where " + std::to_string(rest_.size()) +
           " are left");
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(size));
    rest_.remove_prefix(static_cast<std::size_t>(size));
    return taken;
  }

  const std::string& where_;
  std::string_view rest_, bytes_;
  std::uint64_t value_ = 0;
  int field_ = 0;
  unsigned wire_ = 0;
};

}  // namespace ikebana::detail
