#include "penstock/checkpoint/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace penstock {
namespace {

int flags_of(SymbolicLinks links) {
  // Without O_NONBLOCK, opening a pipe waits for its other end.
  return O_RDONLY | O_NONBLOCK | (links == SymbolicLinks::refused ? O_NOFOLLOW : 0);
}

}  // namespace

bool is_absence(int error_number) { return error_number == ENOENT || error_number == ENOTDIR; }

ReadFile::ReadFile(SystemCalls& calls, const std::string& path, SymbolicLinks links)
    : calls_(&calls), path_(path), file_(open_file(calls, path, flags_of(links))) {
  if (!file_.is_open() && errno == ELOOP && links == SymbolicLinks::refused)
    throw DataError(say("cannot open '", path, "': it is a symbolic link, which leads out of the checkpoint"));
  if (!file_.is_open() && is_absence(errno)) throw DataError(say("cannot open '", path, "': ", error_text_of(errno)));
  require<NotReadable>(file_.is_open(), "cannot open '", path, "': ", error_text_of(errno));
  struct stat properties {};
  require<NotReadable>(::fstat(file_.number(), &properties) == 0, "cannot open '", path, "': ", error_text_of(errno));
  require<DataError>(S_ISREG(properties.st_mode), "cannot open '", path, "': it is not a regular file");
  size_ = static_cast<std::uint64_t>(properties.st_size);
}

void ReadFile::read(std::uint64_t offset, std::span<std::byte> into) const {
  constexpr std::size_t largest_read = std::size_t{1} << 30;
  while (!into.empty()) {
    const std::size_t count = std::min(into.size(), largest_read);
    const ssize_t done = calls_->pread(file_.number(), into.data(), count, offset);
    if (done < 0 && errno == EINTR) continue;
    require<NotReadable>(done >= 0, "cannot read '", path_, "' at byte ", offset, ": ", error_text_of(errno));
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

namespace {

constexpr const char* pickle_converter =
    "import torch, safetensors.torch; "
    "safetensors.torch.save_file(torch.load('FILE.pt', weights_only=True), 'FILE.safetensors')";

/// Whether a file with these first bytes is one of torch.save or TorchScript: a zip archive, or the pickle of older
/// versions. Neither is the begin of a .safetensors file, whose header would be longer than possible.
bool holds_pickle(std::uint64_t first_bytes) {
  constexpr std::uint64_t zip = 0x04034b50, pickle = 0x0a8a0280;
  const std::uint64_t low = first_bytes & 0xffffffff, high = first_bytes >> 32;
  return (low == zip && high != 0) || low == pickle;
}

}  // namespace

std::uint64_t safetensors_data_begin(const ReadFile& file) {
  std::uint64_t length = 0;
  require<DataError>(file.size() >= sizeof(length), "'", file.path(), "' is not a safetensors file: it has ",
                     file.size(), " bytes");
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  require<DataError>(!holds_pickle(length), "'", file.path(),
                     "' is a file of torch.save, which is not read, because it can contain code; Python converts it, "
                     "with PyTorch 2.10 or later, since earlier versions are not safe with such files "
                     "(CVE-2026-24747): ",
                     pickle_converter);
  require<DataError>(length <= longest_safetensors_header && length <= file.size() - sizeof(length), "'", file.path(),
                     "' is not a safetensors file, or is cut short: it has ", file.size(),
                     " bytes, and claims a header of ", length, " bytes, of which ", longest_safetensors_header,
                     " are possible");
  return sizeof(length) + length;
}

SafetensorsHeader read_safetensors_header(const ReadFile& file) {
  constexpr std::uint64_t largest_piece = std::uint64_t{1} << 16;
  const std::uint64_t end = safetensors_data_begin(file);
  std::uint64_t at = sizeof(std::uint64_t);
  std::string piece;
  const auto next = [&]() -> std::string_view {
    piece.resize(static_cast<std::size_t>(std::min(end - at, largest_piece)));
    file.read(at, std::as_writable_bytes(std::span(piece)));
    at += piece.size();
    return piece;
  };
  return read_safetensors_header(next, file.size() - end, file.path());
}

SafetensorsFile open_safetensors(SystemCalls& calls, const std::string& path, SymbolicLinks links) {
  ReadFile file(calls, path, links);
  SafetensorsHeader header = read_safetensors_header(file);
  const std::uint64_t data_begin = safetensors_data_begin(file);
  return {std::move(file), data_begin, std::move(header)};
}

}  // namespace penstock
