#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
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

#include "ikebana/core/random.hpp"
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
  /// Closes the file. Returns 0, or -1 with errno set.
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

/// A regular file opened for reading at any offset. Throws io_error.
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

/// A file that appears completely or not at all: it is written to a temporary file in the same
/// directory, synced and renamed. Until commit() renames it, the target does not change; if an
/// exception is thrown, the temporary file is removed.
///
/// A symbolic link is followed, whether its target exists or not. The permissions of an existing
/// file are kept, and so are its owner and group if this process may set them; otherwise the group
/// gets the permissions of others. Temporary files of the same target that killed processes left
/// are removed: a temporary file is locked while its writer lives. Throws io_error.
class atomic_file {
 public:
  explicit atomic_file(const std::filesystem::path& path)
      : path_{path.string()}, target_{resolve(path)}, file_{create()} {
    struct stat status {};
    const bool exists = ::stat(target_.c_str(), &status) == 0;
    // The destructor does not run if this constructor throws, so the temporary is removed here.
    if (exists && !take_over(status)) {
      const int why = errno;
      ::unlink(temporary_.c_str());
      fail_io(path_, "cannot set the permissions", why);
    }
    remove_leftovers();
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
    // Some file systems report errors only on close. The lock stays with the original descriptor
    // until the file has its name.
    descriptor copy(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy || copy.close() != 0) fail_io(path_, "cannot close", errno);
    if (::rename(temporary_.c_str(), target_.c_str()) != 0)
      fail_io(path_, "cannot rename " + temporary_ + " over it", errno);
    temporary_.clear();
    const descriptor directory(::open(parent().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory) fail_io(path_, "written, but cannot open its directory to sync", errno);
    // EINVAL: a file system that cannot sync directories.
    if (::fsync(directory.get()) != 0 && errno != EINVAL)
      fail_io(path_, "written, but cannot sync its directory", errno);
  }

 private:
  static std::filesystem::path resolve(const std::filesystem::path& path) {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::path target = path;
    for (int links = 0; fs::is_symlink(fs::symlink_status(target, error)); ++links) {
      const fs::path to = fs::read_symlink(target, error);
      if (links == 40) error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
      if (error) fail_io(path.string(), "cannot follow the link", error.value());
      target = target.parent_path() / to;
    }
    const fs::file_status status = fs::status(target, error);
    if (fs::exists(status) && !fs::is_regular_file(status))
      fail_io(path.string(), "is not a regular file");
    return target;
  }

  std::filesystem::path parent() const {
    return target_.has_parent_path() ? target_.parent_path() : std::filesystem::path(".");
  }

  /// Gives the temporary file the owner, group and permissions of the file that it replaces.
  bool take_over(const struct stat& old) const {
    const bool has_group = ::fchown(file_.get(), old.st_uid, old.st_gid) == 0 ||
                           ::fchown(file_.get(), static_cast<::uid_t>(-1), old.st_gid) == 0;
    ::mode_t mode = old.st_mode & 0777;
    if (!has_group) mode = (mode & ~::mode_t{070}) | (mode & 07) << 3;
    return ::fchmod(file_.get(), mode) == 0;
  }

  /// The prefix of the names of the target's temporaries. It is a hash, since the target's name may
  /// already have the maximal length.
  std::string prefix() const {
    return ".ikebana-" + hexadecimal(hash_path(target_.filename().string())) + '-';
  }

  static std::string hexadecimal(std::uint64_t n) {
    std::string digits;
    for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[n >> shift & 15];
    return digits;
  }

  /// Process numbers repeat, in every container and after every boot, so names are random.
  static std::uint64_t random_number() {
    std::uint64_t n = 0;
    if (::getentropy(&n, sizeof n) == 0) return n;
    static std::atomic<std::uint64_t> counter{0};
    ::timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return (static_cast<std::uint64_t>(::getpid()) << 40) ^
           (static_cast<std::uint64_t>(now.tv_nsec) << 8) ^ counter++;
  }

  descriptor create() {
    if (!target_.has_filename()) fail_io(path_, "has no file name");
    for (int attempt = 0;; ++attempt) {
      const std::string candidate =
          (parent() / (prefix() + hexadecimal(random_number()) + temporary_suffix)).string();
      descriptor file(::open(candidate.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
      if (!file) {
        if (errno == EEXIST && attempt < 100) continue;
        fail_io(path_, "cannot create " + candidate, errno);
      }
      // Without locks on this file system, nothing counts as a leftover.
      while (::flock(file.get(), LOCK_EX) != 0 && errno == EINTR) {
      }
      // Another process may have removed it as a leftover before it was locked.
      struct stat status {};
      if (::fstat(file.get(), &status) == 0 && status.st_nlink == 0 && attempt < 100) continue;
      temporary_ = candidate;
      return file;
    }
  }

  /// Removes temporaries of the same target that no process holds. Failures are harmless and
  /// ignored.
  void remove_leftovers() const {
    namespace fs = std::filesystem;
    const std::string begin = prefix();
    std::error_code ignored;
    for (fs::directory_iterator entry(parent(), ignored), end; !ignored && entry != end;
         entry.increment(ignored)) {
      const std::string name = entry->path().filename().string();
      if (!name.starts_with(begin) || !name.ends_with(temporary_suffix)) continue;
      constexpr int flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
      // NFS locks only files opened for writing.
      int fd = ::open(entry->path().c_str(), O_RDWR | flags);
      if (fd < 0) fd = ::open(entry->path().c_str(), O_RDONLY | flags);
      const descriptor left(fd);
      // The lock on this writer's own temporary belongs to another descriptor, so it is respected
      // here too.
      if (left && ::flock(left.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(entry->path().c_str());
    }
  }

  static constexpr const char* temporary_suffix = ".tmp";

  std::string path_;
  std::filesystem::path target_;
  std::string temporary_;
  descriptor file_;
};

}  // namespace ikebana::detail
