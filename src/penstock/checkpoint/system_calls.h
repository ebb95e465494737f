// The system calls of reading and writing checkpoints, in one place, so that tests can let each of them fail.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

/// Each function is one system call: it returns what that returns (-1 for an error) and sets errno. Tests override them
/// to inject errors, short writes and power failures; everything else uses real(). Thread-safe.
class SystemCalls {
 public:
  virtual ~SystemCalls() = default;
  static SystemCalls& real();

  virtual int open(const std::string& path, int flags, mode_t mode);
  virtual ssize_t write(int file, const void* bytes, std::size_t count);
  virtual ssize_t pread(int file, void* bytes, std::size_t count, std::uint64_t offset);
  /// Begins to write a part of the file to the disk and does not wait for it: fsync() then takes less time.
  virtual int start_writing(int file, std::uint64_t offset, std::uint64_t count);
  virtual int fsync(int file);
  virtual int close(int file);
  /// A lock of this open file, without waiting. It ends with the process, however that ends.
  virtual int lock(int file);
  virtual int mkdir(const std::string& path, mode_t mode);
  virtual int rename(const std::string& from, const std::string& to);
  /// unlinkat(): removes `name` in an open directory, or the path `name` if `directory` is AT_FDCWD. Never follows a
  /// symbolic link at its end. `flags` is 0, or AT_REMOVEDIR for an empty directory.
  virtual int unlink_at(int directory, const std::string& name, int flags);
  /// Sets `names` to those in an open directory, without "." and "..".
  virtual int list(int directory, std::vector<std::string>& names);
};

/// The calls of `inner`, and which of them are under way: a disk that does not respond blocks a call indefinitely.
/// Thread-safe.
class WatchedCalls final : public SystemCalls {
 public:
  explicit WatchedCalls(SystemCalls& inner) : inner_(inner) {}

  /// If a call has been under way for `limit`: its file, its name and the limit, as the text of an error.
  std::optional<std::string> blocked(std::chrono::nanoseconds limit) const;
  /// All later calls fail with ETIMEDOUT, except for close().
  void stop() { is_stopped_ = true; }

  int open(const std::string& path, int flags, mode_t mode) override;
  ssize_t write(int file, const void* bytes, std::size_t count) override;
  ssize_t pread(int file, void* bytes, std::size_t count, std::uint64_t offset) override;
  int start_writing(int file, std::uint64_t offset, std::uint64_t count) override;
  int fsync(int file) override;
  int close(int file) override;
  int lock(int file) override;
  int mkdir(const std::string& path, mode_t mode) override;
  int rename(const std::string& from, const std::string& to) override;
  int unlink_at(int directory, const std::string& name, int flags) override;
  int list(int directory, std::vector<std::string>& names) override;

 private:
  struct Call {
    const char* name;
    int file;          // an open file or directory, or AT_FDCWD
    std::string path;  // relative to `file`; "": of `file` itself
    std::int64_t since_ns;
  };
  template <class Function>
  auto watch(const char* name, int file, const std::string& path, const Function& call);

  SystemCalls& inner_;
  std::atomic<bool> is_stopped_{false};
  mutable std::mutex mutex_;
  std::list<Call> calls_;  // guarded by mutex_: those under way
};

/// "No space left on device (errno 28)".
std::string error_text_of(int error_number);

}  // namespace penstock
