#include "penstock/checkpoint/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "penstock/base/error.h"

namespace penstock {
namespace {

int flags_of(SymbolicLinks links) {
  // Without O_NONBLOCK, opening a pipe waits for its other end.
  return O_RDONLY | O_NONBLOCK | (links == SymbolicLinks::refused ? O_NOFOLLOW : 0);
}

}  // namespace

ReadFile::ReadFile(SystemCalls& calls, const std::string& path, SymbolicLinks links)
    : calls_(&calls), path_(path), file_(open_file(calls, path, flags_of(links))) {
  if (!file_.is_open() && errno == ELOOP && links == SymbolicLinks::refused)
    throw DataError(say("cannot open '", path, "': it is a symbolic link, which leads out of the checkpoint"));
  require<DataError>(file_.is_open(), "cannot open '", path, "': ", error_text_of(errno));
  struct stat properties {};
  require<DataError>(::fstat(file_.number(), &properties) == 0, "cannot open '", path, "': ", error_text_of(errno));
  require<DataError>(S_ISREG(properties.st_mode), "cannot open '", path, "': it is not a regular file");
  size_ = static_cast<std::uint64_t>(properties.st_size);
}

void ReadFile::read(std::uint64_t offset, std::span<std::byte> into) const {
  constexpr std::size_t largest_read = std::size_t{1} << 30;
  while (!into.empty()) {
    const std::size_t count = std::min(into.size(), largest_read);
    const ssize_t done = calls_->pread(file_.number(), into.data(), count, offset);
    if (done < 0 && errno == EINTR) continue;
    require<DataError>(done >= 0, "cannot read '", path_, "' at byte ", offset, ": ", error_text_of(errno));
    require<DataError>(done > 0, "cannot read '", path_, "': it ends at byte ", offset, ", and had ", size_);
    offset += static_cast<std::uint64_t>(done);
    into = into.subspan(static_cast<std::size_t>(done));
  }
}

std::string ReadFile::text(std::uint64_t most) const {
  require<DataError>(size_ <= most, "'", path_, "' has ", size_, " bytes: more than the ", most, " that are accepted");
  std::string text(static_cast<std::size_t>(size_), '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string read_safetensors_prefix(const ReadFile& file) {
  std::uint64_t length = 0;
  require<DataError>(file.size() >= sizeof(length), "'", file.path(), "' is not a safetensors file: it has ",
                     file.size(), " bytes");
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  require<DataError>(length <= longest_safetensors_header && length <= file.size() - sizeof(length), "'", file.path(),
                     "' is not a safetensors file, or is cut short: it has ", file.size(),
                     " bytes, and claims a header of ", length, " bytes, of which ", longest_safetensors_header,
                     " are possible");
  std::string prefix(sizeof(length) + static_cast<std::size_t>(length), '\0');
  file.read(0, std::as_writable_bytes(std::span(prefix)));
  return prefix;
}

SafetensorsFile open_safetensors(SystemCalls& calls, const std::string& path, SymbolicLinks links) {
  ReadFile file(calls, path, links);
  std::string prefix = read_safetensors_prefix(file);
  SafetensorsHeader header = read_safetensors_header(std::string_view(prefix).substr(sizeof(std::uint64_t)),
                                                     file.size() - prefix.size(), path);
  return {std::move(file), std::move(prefix), std::move(header)};
}

}  // namespace penstock
