#pragma once

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"

// Logs of a run as files: CSV for a spreadsheet or read_table, event files for TensorBoard. Both
// write each line at once, so that a run that is killed has its log.

namespace ikebana {

/// A number of a log, by name.
struct logged {
  std::string_view name;
  double value;
};

namespace detail {

struct log_file_closer {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using log_file = std::unique_ptr<std::FILE, log_file_closer>;

/// By the error number of the call before.
template <class = void>
[[noreturn]] void fail_log(const std::filesystem::path& path, const char* what) {
  const int error_number = errno;
  throw io_error(path.string() + ": " + what + ": " +
                 std::generic_category().message(error_number));
}

/// CRC-32C (Castagnoli), bit by bit: a log writes few bytes.
constexpr std::uint32_t crc32c(std::span<const unsigned char> bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const unsigned char b : bytes) {
    crc ^= b;
    for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

}  // namespace detail

/// A log of numbers as a CSV file, whose columns are the names of the first line: `log.add(epoch,
/// {{"loss", 0.25}, {"accuracy", 0.9}})`.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_csv_log {
 public:
  /// Creates the file, or continues it if it exists: `append = false` begins it anew. Throws
  /// io_error.
  explicit basic_csv_log(const std::filesystem::path& path, bool append = true) : path_{path} {
    if (append) read_header();
    file_.reset(std::fopen(path.c_str(), append ? "ab" : "wb"));
    if (!file_) detail::fail_log(path_, "cannot open");
  }

  /// Adds a line. The names must be those of the first line, in its order: throws error otherwise,
  /// and io_error if the line cannot be written.
  void add(std::int64_t step, std::span<const logged> numbers) {
    std::string header = "step";
    for (const logged& n : numbers) {
      if (n.name.find_first_of(",\"\r\n") != std::string_view::npos)
        throw error("csv_log: a name has a comma, quote or end of line: " + std::string(n.name));
      header += ',' + std::string(n.name);
    }
    if (header_.empty())
      std::fprintf(file_.get(), "%s\n", header.c_str());
    else if (header != header_)
      throw error("csv_log: expected the columns " + header_ + ", got " + header);
    header_ = header;
    std::fprintf(file_.get(), "%lld", static_cast<long long>(step));
    for (const logged& n : numbers) std::fprintf(file_.get(), ",%.9g", n.value);
    std::fputc('\n', file_.get());
    if (std::fflush(file_.get()) != 0 || std::ferror(file_.get()) != 0)
      detail::fail_log(path_, "cannot write");
  }
  void add(std::int64_t step, std::initializer_list<logged> numbers) {
    add(step, std::span<const logged>(numbers.begin(), numbers.size()));
  }

 private:
  void read_header() {
    const detail::log_file file{std::fopen(path_.c_str(), "rb")};
    if (!file) return;
    for (int c; (c = std::fgetc(file.get())) != EOF && c != '\n';) header_ += static_cast<char>(c);
  }

  std::filesystem::path path_;
  detail::log_file file_;
  std::string header_;
};
using csv_log = basic_csv_log<void>;

/// A log of numbers that TensorBoard shows as curves: an event file in a directory, with one
/// subdirectory for each run that is to be compared. Names with a slash, "loss/train", are grouped.
///
/// The format is TensorFlow's: records of length, CRC-32C, bytes, CRC-32C, each an Event message.
/// A template, so that it is compiled only where it is used.
template <class>
class basic_tensorboard_log {
 public:
  /// Makes the directory and in it a new file, events.out.tfevents.TIME.PID.NUMBER. Throws
  /// io_error.
  explicit basic_tensorboard_log(const std::filesystem::path& directory) {
    std::error_code wrong;
    std::filesystem::create_directories(directory, wrong);
    // "x": a file that exists belongs to another log.
    for (int n = 0; n < 10'000 && !file_; ++n) {
      path_ = directory / ("events.out.tfevents." + std::to_string(std::time(nullptr)) +
                           ".ikebana." + std::to_string(n));
      file_.reset(std::fopen(path_.c_str(), "wxb"));
    }
    if (!file_) detail::fail_log(path_, "cannot create");
    bytes event;
    event.number(1, now());
    event.text(3, "brain.Event:2");
    write(event);
  }

  /// Adds the values of a step. Throws io_error.
  void add(std::int64_t step, std::span<const logged> numbers) {
    bytes summary;
    for (const logged& n : numbers) {
      bytes value;
      value.text(1, n.name);
      value.number(2, static_cast<float>(n.value));
      summary.text(1, value.all);
    }
    bytes event;
    event.number(1, now());
    event.varint(2 << 3);
    event.varint(static_cast<std::uint64_t>(step));
    event.text(5, summary.all);
    write(event);
  }
  void add(std::int64_t step, std::initializer_list<logged> numbers) {
    add(step, std::span<const logged>(numbers.begin(), numbers.size()));
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  /// A message in the encoding of protocol buffers.
  struct bytes {
    std::string all;

    void varint(std::uint64_t x) {
      for (; x >= 0x80; x >>= 7) all += static_cast<char>(x | 0x80);
      all += static_cast<char>(x);
    }
    void text(std::uint64_t field, std::string_view s) {
      varint(field << 3 | 2);
      varint(s.size());
      all += s;
    }
    void number(std::uint64_t field, double x) {
      varint(field << 3 | 1);
      little_endian(std::bit_cast<std::uint64_t>(x), 8);
    }
    void number(std::uint64_t field, float x) {
      varint(field << 3 | 5);
      little_endian(std::bit_cast<std::uint32_t>(x), 4);
    }
    void little_endian(std::uint64_t x, int size) {
      for (int i = 0; i < size; ++i) all += static_cast<char>(x >> (8 * i) & 0xff);
    }
  };

  static double now() {
    std::timespec t;
    std::timespec_get(&t, TIME_UTC);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }

  /// The sum that records have, rotated so that a sum of sums differs.
  static std::uint32_t masked_sum(std::string_view s) {
    const std::uint32_t crc =
        detail::crc32c({reinterpret_cast<const unsigned char*>(s.data()), s.size()});
    return std::rotr(crc, 15) + 0xa282ead8u;
  }

  void write(const bytes& event) {
    bytes record;
    record.little_endian(event.all.size(), 8);
    record.little_endian(masked_sum(record.all), 4);
    record.all += event.all;
    record.little_endian(masked_sum(event.all), 4);
    if (std::fwrite(record.all.data(), 1, record.all.size(), file_.get()) != record.all.size() ||
        std::fflush(file_.get()) != 0)
      detail::fail_log(path_, "cannot write");
  }

  std::filesystem::path path_;
  detail::log_file file_;
};
using tensorboard_log = basic_tensorboard_log<void>;

}  // namespace ikebana
