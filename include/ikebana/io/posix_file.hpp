#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "ikebana/io/file.hpp"

namespace ikebana::detail {

/// A file descriptor that is closed when it goes out of scope.
class descriptor {
 public:
  explicit descriptor(int fd) : fd_{fd} {}
  descriptor(descriptor&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  descriptor& operator=(descriptor&&) = delete;
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  /// 0, or -1 with errno set.
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

/// A regular file open for reading at any offset. Throws io_error.
class input_file {
 public:
  explicit input_file(const std::filesystem::path& path)
      : path_{path.string()}, file_{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)} {
    if (!file_) fail_io(path_, "cannot open", errno);
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) fail_io(path_, "cannot read", errno);
    if (!S_ISREG(status.st_mode)) fail_io(path_, "is not a regular file");
    size_ = static_cast<std::uint64_t>(status.st_size);
  }

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }

  void read(std::uint64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
      const ::ssize_t n =
          ::pread(file_.get(), out.data(), out.size(), static_cast<::off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_io(path_, "cannot read", errno);
      if (n == 0) fail_io(path_, "became shorter while it was read");
      offset += static_cast<std::uint64_t>(n);
      out = out.subspan(static_cast<std::size_t>(n));
    }
  }

 private:
  std::string path_;
  descriptor file_;
  std::uint64_t size_ = 0;
};

/// A file that appears whole or not at all: written beside the target, synced, renamed over it. A
/// symbolic link is followed, an existing file's permissions are kept. Until commit() has renamed,
/// the target is untouched; if anything throws, the temporary is removed. Throws io_error.
class atomic_file {
 public:
  explicit atomic_file(const std::filesystem::path& path)
      : path_{path.string()}, target_{resolve(path)}, file_{create()} {
    struct stat status {};
    const bool exists = ::stat(target_.c_str(), &status) == 0;
    // The destructor does not run if this constructor throws, so the temporary is removed here.
    if (exists && ::fchmod(file_.get(), status.st_mode & 07777) != 0) {
      const int why = errno;
      ::unlink(temporary_.c_str());
      fail_io(path_, "cannot set the permissions", why);
    }
  }
  atomic_file(const atomic_file&) = delete;
  atomic_file& operator=(const atomic_file&) = delete;
  ~atomic_file() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ::ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_io(path_, "cannot write", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  void commit() {
    if (::fsync(file_.get()) != 0) fail_io(path_, "cannot sync", errno);
    if (file_.close() != 0) fail_io(path_, "cannot close", errno);
    if (::rename(temporary_.c_str(), target_.c_str()) != 0)
      fail_io(path_, "cannot rename " + temporary_ + " over it", errno);
    temporary_.clear();
    const descriptor directory(::open(parent().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory) fail_io(path_, "written, but cannot open its directory to sync", errno);
    // EINVAL: a file system that has no syncing of directories.
    if (::fsync(directory.get()) != 0 && errno != EINVAL)
      fail_io(path_, "written, but cannot sync its directory", errno);
  }

 private:
  static std::filesystem::path resolve(const std::filesystem::path& path) {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::path target = path;
    if (fs::is_symlink(fs::symlink_status(path, error))) {
      target = fs::weakly_canonical(path, error);
      if (error) fail_io(path.string(), "cannot follow the link", error.value());
    }
    const fs::file_status status = fs::status(target, error);
    if (fs::exists(status) && !fs::is_regular_file(status))
      fail_io(path.string(), "is not a regular file");
    return target;
  }

  std::filesystem::path parent() const {
    return target_.has_parent_path() ? target_.parent_path() : std::filesystem::path(".");
  }

  descriptor create() {
    static std::atomic<unsigned> counter{0};
    if (!target_.has_filename()) fail_io(path_, "has no file name");
    for (int attempt = 0;; ++attempt) {
      // Not made of the target's name, which may already be as long as a name can be.
      const std::string name =
          ".ikebana-" + std::to_string(::getpid()) + '-' + std::to_string(counter++) + ".tmp";
      const std::string candidate = (parent() / name).string();
      descriptor file(::open(candidate.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
      if (file) {
        temporary_ = candidate;
        return file;
      }
      if (errno != EEXIST || attempt == 100) fail_io(path_, "cannot create " + candidate, errno);
    }
  }

  std::string path_;
  std::filesystem::path target_;
  std::string temporary_;
  descriptor file_;
};

}  // namespace ikebana::detail
