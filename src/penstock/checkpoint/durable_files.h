// The files of checkpoints: written so that they are on the disk when a function returns, and read without trust in
// their contents. All system calls are in one place, so that tests can let each of them fail.
//
// Functions that write retry calls that a signal interrupted, and throw Failure, which names the file and the system's
// error.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/checkpoint/safetensors_header.h"

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

/// An open file or directory; closed at the end.
class OpenFile {
 public:
  /// `file` may be -1: none.
  OpenFile(SystemCalls& calls, int file) : calls_(&calls), file_(file) {}
  OpenFile(OpenFile&& other) noexcept : calls_(other.calls_), file_(other.release()) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() {
    if (file_ >= 0) calls_->close(file_);
  }

  bool is_open() const { return file_ >= 0; }
  int number() const { return file_; }
  /// Gives the file up without closing it.
  int release() noexcept {
    const int file = file_;
    file_ = -1;
    return file;
  }

 private:
  SystemCalls* calls_;
  int file_;
};

/// open() until no signal interrupts it; errno is set if none is open.
OpenFile open_file(SystemCalls& calls, const std::string& path, int flags, mode_t mode = 0);

/// Locks an open file for this process; false if another process has locked it.
bool lock_file(SystemCalls& calls, const OpenFile& file, const std::string& path);

/// A file that is being written. `size` is the whole file's, for messages. Long files are written to the disk
/// while their later parts are being made. After a failure an incomplete file is left.
class NewFile {
 public:
  /// Creates the file, which must not exist.
  NewFile(SystemCalls& calls, const std::string& path, std::uint64_t size);
  void write(std::span<const std::byte> bytes);
  /// Writes it to the disk and closes it. sync_directory() of its directory must follow before its name is there, too.
  void finish();

 private:
  SystemCalls& calls_;
  std::string path_;
  std::uint64_t size_;
  std::uint64_t written_ = 0;
  std::uint64_t started_ = 0;  // the part that is on its way to the disk, from the start of the file
  OpenFile file_;
};

using Pieces = std::vector<std::span<const std::byte>>;

/// The same for a file that consists of `pieces`.
void write_new_file(SystemCalls& calls, const std::string& path, const Pieces& pieces);

/// Writes the names in a directory to the disk.
void sync_directory(SystemCalls& calls, const std::string& path);

void make_directory(SystemCalls& calls, const std::string& path);
/// Makes `path` and the directories above it that are missing. Then the name of `path` is on the disk, also if it was
/// there before, unless the directory above it may not be read or written.
void make_directories(SystemCalls& calls, const std::string& path);

/// The names in a directory, in any order. Returns the error's number if it cannot be read, else 0.
int list_names(SystemCalls& calls, const std::string& path, std::vector<std::string>& names);

/// Afterwards `to` is the former `from`, in one step; sync_directory() makes it durable.
void rename_path(SystemCalls& calls, const std::string& from, const std::string& to);

/// Removes a directory and the files in it; it must contain no directories. Does nothing if there is no directory at
/// `path`, but a symbolic link, for example. Removes no file outside of the directory, whatever happens meanwhile.
void remove_directory(SystemCalls& calls, const std::string& path);
/// Removes a file that may be there. An error is ignored.
void remove_file(SystemCalls& calls, const std::string& path) noexcept;

/// A complete file beside the one that it will replace, so that several files are replaced only after all of them have
/// been written. Removed at the end unless commit() was called.
class ReplacementFile {
 public:
  /// Writes the file of `size` bytes by `fill`, to the disk. Follows symbolic links at `path`. Throws ConfigError if
  /// its directory does not exist or `path` is a directory.
  ReplacementFile(SystemCalls& calls, const std::string& path, std::uint64_t size,
                  const std::function<void(NewFile&)>& fill);
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;
  ~ReplacementFile();

  /// `path` becomes this file: other programs, and later ones after a power failure, see either the old file or the
  /// new one.
  void commit();

 private:
  ReplacementFile(SystemCalls& calls, const std::string& path);  // chooses the names

  SystemCalls& calls_;
  std::string target_;
  std::string temporary_;  // empty when it has been renamed
};

/// The file `path` becomes one of `size` bytes that `fill` writes, as by ReplacementFile.
void replace_file(SystemCalls& calls, const std::string& path, std::uint64_t size,
                  const std::function<void(NewFile&)>& fill);

/// The bytes of `text`, which must outlive the result.
inline std::span<const std::byte> bytes_in(const std::string& text) { return std::as_bytes(std::span(text)); }

/// A file that cannot be read here and now, though it may be whole: the system refuses to read it (permissions, a disk
/// or a network that fails), or a later version of Penstock has written it. So no training begins anew in its place.
class NotReadable : public DataError {
 public:
  using DataError::DataError;
};

/// Whether the last part of a path may be a symbolic link.
enum class SymbolicLinks { followed, refused };

/// Whether this error of the system says that nothing is at a path.
bool is_absence(int error_number);

/// A regular file. Reads copy: a mapping into memory would turn an unreadable sector of a disk, and a file that becomes
/// shorter, into a signal that ends the process. Only weights that a training starts from are mapped, by number(). All
/// functions throw DataError, which names the file: NotReadable
/// if the system refuses to read it. Thread-safe.
class ReadFile {
 public:
  ReadFile(SystemCalls& calls, const std::string& path, SymbolicLinks links);

  const std::string& path() const { return path_; }
  int number() const { return file_.number(); }
  std::uint64_t size() const { return size_; }
  /// The bytes from `offset`; all of them must exist.
  void read(std::uint64_t offset, std::span<std::byte> into) const;
  /// The whole file, of at most `most` bytes.
  std::string text(std::uint64_t most) const;

 private:
  SystemCalls* calls_;
  std::string path_;
  OpenFile file_;
  std::uint64_t size_ = 0;
};

/// A .safetensors file whose header was read and checked.
struct SafetensorsFile {
  ReadFile file;
  std::uint64_t data_begin = 0;  // the number of bytes before the data
  SafetensorsHeader header = {};
};

SafetensorsFile open_safetensors(SystemCalls& calls, const std::string& path, SymbolicLinks links);

/// The number of bytes before the data of a .safetensors file.
std::uint64_t safetensors_data_begin(const ReadFile& file);
/// Reads the header. Takes memory for the tensors and the metadata in it, but not for its text.
SafetensorsHeader read_safetensors_header(const ReadFile& file);

}  // namespace penstock
