// Reads parts of files of unknown origin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "penstock/base/error.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/safetensors_header.h"

namespace penstock {

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
/// shorter, into a signal that ends the process. All functions throw DataError, which names the file: NotReadable
/// if the system refuses to read it. Thread-safe.
class ReadFile {
 public:
  ReadFile(SystemCalls& calls, const std::string& path, SymbolicLinks links);

  const std::string& path() const { return path_; }
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
