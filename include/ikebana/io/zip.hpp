#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/io/file.hpp"

// Zip archives whose files are stored, not compressed, as NumPy and PyTorch write them (PKWARE,
// APPNOTE.TXT 6.3.10; sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16 and 4.5.3).
namespace ikebana::detail {

struct zip_file {
  std::string_view name, bytes;
  std::uint32_t crc = 0;
};

/// The checksum of section 4.4.7. O(bytes).
template <class = void>
std::uint32_t crc32(std::string_view bytes) {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> all{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? 0xedb88320U ^ (c >> 1) : c >> 1;
      all[i] = c;
    }
    return all;
  }();
  std::uint32_t c = 0xffffffffU;
  for (const char b : bytes) c = table[(c ^ static_cast<unsigned char>(b)) & 0xff] ^ (c >> 8);
  return c ^ 0xffffffffU;
}

/// Little-endian numbers of an archive. Throws io_error beyond its end.
template <class>
class basic_zip_reader {
 public:
  basic_zip_reader(const std::string& path, std::string_view archive)
      : path_{path}, archive_{archive} {}

  /// The files, in the order of the central directory. Views of the archive.
  std::vector<zip_file> files() const {
    // The comment after the last record has at most 65,535 bytes.
    constexpr std::size_t record = 22, comment = 65'535;
    if (archive_.size() < record) fail_io(path_, "is no zip archive: it is too short");
    std::size_t end = archive_.size() - record;
    const std::size_t first = end < comment ? 0 : end - comment;
    while (number(end, 4) != 0x06054b50U) {
      if (end == first) fail_io(path_, "is no zip archive, or ends before its directory");
      --end;
    }
    std::uint64_t count = number(end + 10, 2), at = number(end + 16, 4);
    if (end >= 20 && number(end - 20, 4) == 0x07064b50U) {
      const std::uint64_t large = number(end - 12, 8);
      if (number(large, 4) != 0x06064b50U) fail_io(path_, "has a damaged zip64 directory");
      count = number(large + 32, 8);
      at = number(large + 48, 8);
    }
    std::vector<zip_file> all;
    for (std::uint64_t i = 0; i < count; ++i) all.push_back(next(at));
    return all;
  }

 private:
  std::string_view part(std::uint64_t at, std::uint64_t size) const {
    if (at > archive_.size() || size > archive_.size() - at)
      fail_io(path_,
              "ends within a part of " + std::to_string(size) + " bytes at " + std::to_string(at));
    return archive_.substr(static_cast<std::size_t>(at), static_cast<std::size_t>(size));
  }
  std::uint64_t number(std::uint64_t at, std::size_t bytes) const {
    const std::string_view text = part(at, bytes);
    std::uint64_t n = 0;
    for (std::size_t i = bytes; i-- > 0;) n = n << 8 | static_cast<unsigned char>(text[i]);
    return n;
  }

  /// Reads the entry of the central directory at `at`, and moves behind it.
  zip_file next(std::uint64_t& at) const {
    if (number(at, 4) != 0x02014b50U) fail_io(path_, "has a damaged zip directory");
    zip_file file;
    const std::uint64_t method = number(at + 10, 2), name = number(at + 28, 2),
                        extra = number(at + 30, 2), comment = number(at + 32, 2);
    file.crc = static_cast<std::uint32_t>(number(at + 16, 4));
    file.name = part(at + 46, name);
    std::array<std::uint64_t, 3> fields{number(at + 24, 4), number(at + 20, 4),
                                        number(at + 42, 4)};  // size, compressed, offset
    read_large(at + 46 + name, extra, fields);
    if (method != 0 || fields[0] != fields[1])
      fail_io(path_, "has the compressed file " + in_quotes(file.name) +
                         "; only stored ones are read: numpy.savez and torch.save write these");
    if (number(fields[2], 4) != 0x04034b50U)
      fail_io(path_,
              "does not have the file " + in_quotes(file.name) + " where its directory says");
    file.bytes =
        part(fields[2] + 30 + number(fields[2] + 26, 2) + number(fields[2] + 28, 2), fields[0]);
    at += 46 + name + extra + comment;
    return file;
  }

  /// Of each field that is 2^32 - 1, the number in the extra field of zip64.
  void read_large(std::uint64_t at, std::uint64_t size,
                  std::array<std::uint64_t, 3>& fields) const {
    const std::uint64_t end = at + size;
    while (at + 4 <= end) {
      const std::uint64_t id = number(at, 2), length = number(at + 2, 2);
      at += 4;
      std::uint64_t from = at;
      for (std::uint64_t& field : fields) {
        if (id != 1 || field != 0xffffffffU || from + 8 > at + length) continue;
        field = number(from, 8);
        if (field > std::numeric_limits<std::uint64_t>::max() / 2)
          fail_io(path_, "has a damaged zip64 directory");
        from += 8;
      }
      at += length;
    }
  }

  const std::string& path_;
  std::string_view archive_;
};

/// Throws io_error for what is no such archive.
template <class = void>
std::vector<zip_file> read_zip(const std::string& path, std::string_view archive) {
  return basic_zip_reader<void>(path, archive).files();
}

/// Writes an archive of stored files; `write(text)` takes its bytes in order. Sizes and offsets
/// from 2^32 on are in fields of zip64.
template <class Write>
class zip_writer {
 public:
  explicit zip_writer(Write write) : write_{std::move(write)} {}

  void add(std::string_view name, std::string_view bytes) {
    entry e{std::string(name), crc32(bytes), bytes.size(), at_};
    std::string header = number(0x04034b50U, 4);
    header += record(e, true);
    put(header);
    put(bytes);
    entries_.push_back(std::move(e));
  }

  void finish() {
    const std::uint64_t begin = at_;
    for (const entry& e : entries_) put(number(0x02014b50U, 4) + number(45, 2) + record(e, false));
    const std::uint64_t size = at_ - begin, count = entries_.size(), large = at_;
    const bool needs_large = count >= 0xffff || begin >= 0xffffffffU || size >= 0xffffffffU;
    if (needs_large)
      put(number(0x06064b50U, 4) + number(44, 8) + number(45, 2) + number(45, 2) + number(0, 8) +
          number(count, 8) + number(count, 8) + number(size, 8) + number(begin, 8) +
          number(0x07064b50U, 4) + number(0, 4) + number(large, 8) + number(1, 4));
    const std::uint64_t of_two = needs_large ? 0xffff : count;
    put(number(0x06054b50U, 4) + number(0, 4) + number(of_two, 2) + number(of_two, 2) +
        number(needs_large ? 0xffffffffU : size, 4) + number(needs_large ? 0xffffffffU : begin, 4) +
        number(0, 2));
  }

 private:
  struct entry {
    std::string name;
    std::uint32_t crc;
    std::uint64_t size, at;
  };

  static std::string number(std::uint64_t n, std::size_t bytes) {
    std::string out;
    for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>(n >> (8 * i) & 0xff);
    return out;
  }
  void put(std::string_view text) {
    write_(text);
    at_ += text.size();
  }

  /// What a local header and an entry of the directory have in common, and their rest.
  static std::string record(const entry& e, bool is_local) {
    const bool needs_large = e.size >= 0xffffffffU || e.at >= 0xffffffffU;
    std::string extra;
    if (needs_large)
      extra = number(1, 2) + number(is_local ? 16 : 24, 2) + number(e.size, 8) + number(e.size, 8) +
              (is_local ? std::string() : number(e.at, 8));
    const std::uint64_t size = needs_large ? 0xffffffffU : e.size;
    // Version 4.5, names in UTF-8, stored, the first of January 1980.
    std::string out = number(45, 2) + number(0x800, 2) + number(0, 2) + number(0, 2) +
                      number(0x21, 2) + number(e.crc, 4) + number(size, 4) + number(size, 4) +
                      number(e.name.size(), 2) + number(extra.size(), 2);
    if (!is_local)
      out += number(0, 2) + number(0, 2) + number(0, 2) + number(0, 4) +
             number(needs_large ? 0xffffffffU : e.at, 4);
    return out + e.name + extra;
  }

  Write write_;
  std::uint64_t at_ = 0;
  std::vector<entry> entries_;
};

}  // namespace ikebana::detail
