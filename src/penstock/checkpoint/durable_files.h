// Files and directories that are on the disk, not only in its cache, when a function returns. All functions retry calls
// that a signal interrupted, and throw Failure, which names the file and the system's error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "penstock/checkpoint/system_calls.h"

namespace penstock {

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

/// A file that is being written. `size` is that of the whole file, for messages. Long files are written to the disk
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
  std::uint64_t started_ = 0;  // the part that is on its way to the disk, from the begin of the file
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

}  // namespace penstock
