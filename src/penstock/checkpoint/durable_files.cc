#include "penstock/checkpoint/durable_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// The path of an open file; "" if the system does not tell.
std::string path_of(int file) {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = ::readlink(say("/proc/self/fd/", file).c_str(), path.data(), path.size());
  return {path.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

constexpr mode_t any_file = 0666, any_directory = 0777;  // less the umask

/// Calls `call` until no signal interrupts it.
template <class Call>
auto uninterrupted(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

[[noreturn]] void fail(const std::string& path, const char* what, int error_number) {
  throw Failure(say("'", path, "' ", what, ": ", error_text_of(error_number)));
}

struct SyncResult {
  int error_number = 0;
  const char* what = "";
};

/// Writes the names in a directory to the disk.
SyncResult sync(SystemCalls& calls, const std::string& path) {
  const OpenFile directory = open_file(calls, path, O_RDONLY | O_DIRECTORY);
  if (!directory.is_open()) return {errno, "cannot be opened"};
  if (uninterrupted([&] { return calls.fsync(directory.number()); }) < 0)
    return {errno, "cannot be written to the disk"};
  return {};
}

int flags_of(SymbolicLinks links) {
  // Without O_NONBLOCK, opening a pipe waits for its other end.
  return O_RDONLY | O_NONBLOCK | (links == SymbolicLinks::refused ? O_NOFOLLOW : 0);
}

constexpr const char* pickle_converter =
    "import torch, safetensors.torch; "
    "safetensors.torch.save_file(torch.load('FILE.pt', weights_only=True), 'FILE.safetensors')";

/// Whether a file with these first bytes is one of torch.save or TorchScript: a zip archive, or the pickle of older
/// versions. Neither is the start of a .safetensors file, whose header would be longer than possible.
bool holds_pickle(std::uint64_t first_bytes) {
  constexpr std::uint64_t zip = 0x04034b50, pickle = 0x0a8a0280;
  const std::uint64_t low = first_bytes & 0xffffffff, high = first_bytes >> 32;
  return (low == zip && high != 0) || low == pickle;
}

}  // namespace

SystemCalls& SystemCalls::real() {
  static SystemCalls calls;  // without state
  return calls;
}

int SystemCalls::open(const std::string& path, int flags, mode_t mode) { return ::open(path.c_str(), flags, mode); }
ssize_t SystemCalls::write(int file, const void* bytes, std::size_t count) { return ::write(file, bytes, count); }
ssize_t SystemCalls::pread(int file, void* bytes, std::size_t count, std::uint64_t offset) {
  return ::pread(file, bytes, count, static_cast<off_t>(offset));
}
int SystemCalls::start_writing(int file, std::uint64_t offset, std::uint64_t count) {
  return ::sync_file_range(file, static_cast<off_t>(offset), static_cast<off_t>(count), SYNC_FILE_RANGE_WRITE);
}
int SystemCalls::fsync(int file) { return ::fsync(file); }
int SystemCalls::close(int file) { return ::close(file); }
int SystemCalls::lock(int file) { return ::flock(file, LOCK_EX | LOCK_NB); }
int SystemCalls::mkdir(const std::string& path, mode_t mode) { return ::mkdir(path.c_str(), mode); }
int SystemCalls::rename(const std::string& from, const std::string& to) { return ::rename(from.c_str(), to.c_str()); }
int SystemCalls::unlink_at(int directory, const std::string& name, int flags) {
  return ::unlinkat(directory, name.c_str(), flags);
}

int SystemCalls::list(int directory, std::vector<std::string>& names) {
  names.clear();
  const int own = ::dup(directory);  // closedir() closes it
  if (own < 0) return -1;
  DIR* const stream = ::fdopendir(own);
  if (stream == nullptr) return ::close(own), -1;
  int problem = 0;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream);
    if (entry == nullptr) {
      problem = errno;
      break;
    }
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(stream);
  errno = problem;
  return problem == 0 ? 0 : -1;
}

std::optional<std::string> WatchedCalls::blocked(std::chrono::nanoseconds limit) const {
  const std::lock_guard lock(mutex_);
  for (const Call& call : calls_) {
    if (now_ns() - call.since_ns < limit.count()) continue;
    const std::string path = call.path.empty()       ? path_of(call.file)
                             : call.file == AT_FDCWD ? call.path
                                                     : path_of(call.file) + "/" + call.path;
    return say("'", path, "': ", call.name, " has not returned for ", to_s(limit.count()),
               " s (the deadline): the disk or its file system does not respond");
  }
  return std::nullopt;
}

template <class Function>
auto WatchedCalls::watch(const char* name, int file, const std::string& path, const Function& call) {
  std::list<Call> own{{name, file, path, now_ns()}};
  const auto place = own.begin();
  {
    const std::lock_guard lock(mutex_);
    calls_.splice(calls_.end(), own);
  }
  decltype(call()) result = -1;
  errno = ETIMEDOUT;
  if (!is_stopped_ || std::string_view(name) == "close") result = call();
  const int error_number = errno;
  {
    const std::lock_guard lock(mutex_);
    own.splice(own.end(), calls_, place);
  }
  own.clear();
  errno = error_number;
  return result;
}

int WatchedCalls::open(const std::string& path, int flags, mode_t mode) {
  return watch("open", AT_FDCWD, path, [&] { return inner_.open(path, flags, mode); });
}
ssize_t WatchedCalls::write(int file, const void* bytes, std::size_t count) {
  return watch("write", file, "", [&] { return inner_.write(file, bytes, count); });
}
ssize_t WatchedCalls::pread(int file, void* bytes, std::size_t count, std::uint64_t offset) {
  return watch("pread", file, "", [&] { return inner_.pread(file, bytes, count, offset); });
}
int WatchedCalls::start_writing(int file, std::uint64_t offset, std::uint64_t count) {
  return watch("sync_file_range", file, "", [&] { return inner_.start_writing(file, offset, count); });
}
int WatchedCalls::fsync(int file) {
  return watch("fsync", file, "", [&] { return inner_.fsync(file); });
}
int WatchedCalls::close(int file) {
  return watch("close", file, "", [&] { return inner_.close(file); });
}
int WatchedCalls::lock(int file) {
  return watch("flock", file, "", [&] { return inner_.lock(file); });
}
int WatchedCalls::mkdir(const std::string& path, mode_t mode) {
  return watch("mkdir", AT_FDCWD, path, [&] { return inner_.mkdir(path, mode); });
}
int WatchedCalls::rename(const std::string& from, const std::string& to) {
  return watch("rename", AT_FDCWD, from, [&] { return inner_.rename(from, to); });
}
int WatchedCalls::unlink_at(int directory, const std::string& name, int flags) {
  return watch("unlink", directory, name, [&] { return inner_.unlink_at(directory, name, flags); });
}
int WatchedCalls::list(int directory, std::vector<std::string>& names) {
  return watch("readdir", directory, "", [&] { return inner_.list(directory, names); });
}

std::string error_text_of(int error_number) {
  return say(std::generic_category().message(error_number), " (errno ", error_number, ")");
}

OpenFile open_file(SystemCalls& calls, const std::string& path, int flags, mode_t mode) {
  return {calls, uninterrupted([&] { return calls.open(path, flags | O_CLOEXEC, mode); })};
}

bool lock_file(SystemCalls& calls, const OpenFile& file, const std::string& path) {
  if (uninterrupted([&] { return calls.lock(file.number()); }) == 0) return true;
  if (errno != EWOULDBLOCK) fail(path, "cannot be locked", errno);
  return false;
}

NewFile::NewFile(SystemCalls& calls, const std::string& path, std::uint64_t size)
    : calls_(calls),
      path_(path),
      size_(size),
      file_(open_file(calls, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, any_file)) {
  if (!file_.is_open()) fail(path, "cannot be created", errno);
}

void NewFile::write(std::span<const std::byte> bytes) {
  constexpr std::size_t largest_write = std::size_t{1} << 30;  // Linux writes at most 2 GiB at a time
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), largest_write);
    const ssize_t done = uninterrupted([&] { return calls_.write(file_.number(), bytes.data(), count); });
    if (done <= 0)
      throw Failure(say("'", path_, "' cannot be written: ", error_text_of(done < 0 ? errno : EIO), ", after ",
                        written_, " of its ", size_, " bytes"));
    written_ += static_cast<std::size_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  constexpr std::uint64_t worth_a_start = std::uint64_t{1} << 20;
  if (written_ - started_ < worth_a_start) return;
  // An error is not lost: fsync() reports it as well. Some file systems cannot do this at all.
  calls_.start_writing(file_.number(), started_, written_ - started_);
  started_ = written_;
}

void NewFile::finish() {
  // Never a second time: after an error the system may have dropped what it could not write.
  if (uninterrupted([&] { return calls_.fsync(file_.number()); }) < 0)
    fail(path_, "cannot be written to the disk", errno);
  // A file system over a network may report errors of writing here. An interrupted close() has closed the file.
  if (calls_.close(file_.release()) < 0 && errno != EINTR) fail(path_, "cannot be closed", errno);
}

void write_new_file(SystemCalls& calls, const std::string& path, const Pieces& pieces) {
  std::uint64_t size = 0;
  for (const auto& piece : pieces) size += piece.size();
  NewFile file(calls, path, size);
  for (const auto& piece : pieces) file.write(piece);
  file.finish();
}

void sync_directory(SystemCalls& calls, const std::string& path) {
  if (const auto [error_number, what] = sync(calls, path); error_number != 0) fail(path, what, error_number);
}

void make_directory(SystemCalls& calls, const std::string& path) {
  if (uninterrupted([&] { return calls.mkdir(path, any_directory); }) < 0) fail(path, "cannot be made", errno);
}

void make_directories(SystemCalls& calls, const std::string& path) {
  if (path.empty()) return;
  std::error_code ignored;
  const std::string above = fs::path(path).parent_path().string(), parent = above.empty() ? "." : above;
  if (fs::is_directory(path, ignored)) {
    // A process that made it may have ended before its name was on the disk. Not every parent may be read or written.
    const auto [error_number, what] = sync(calls, parent);
    if (error_number != 0 && error_number != EACCES && error_number != EINVAL && error_number != EROFS)
      fail(parent, what, error_number);
    return;
  }
  if (!fs::is_directory(parent, ignored)) make_directories(calls, above);
  // Another rank's process may make the same directory.
  if (uninterrupted([&] { return calls.mkdir(path, any_directory); }) < 0 && errno != EEXIST)
    fail(path, "cannot be made", errno);
  sync_directory(calls, parent);
}

int list_names(SystemCalls& calls, const std::string& path, std::vector<std::string>& names) {
  const OpenFile directory = open_file(calls, path, O_RDONLY | O_DIRECTORY);
  if (!directory.is_open()) return errno;
  return uninterrupted([&] { return calls.list(directory.number(), names); }) < 0 ? errno : 0;
}

void rename_path(SystemCalls& calls, const std::string& from, const std::string& to) {
  if (uninterrupted([&] { return calls.rename(from, to); }) < 0)
    throw Failure(say("'", from, "' cannot be renamed to '", to, "': ", error_text_of(errno)));
}

void remove_directory(SystemCalls& calls, const std::string& path) {
  // The names are removed in the directory that was opened, so that nothing can take its place meanwhile.
  const OpenFile directory = open_file(calls, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!directory.is_open() && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) return;
  std::vector<std::string> names;
  if (!directory.is_open() || uninterrupted([&] { return calls.list(directory.number(), names); }) < 0)
    fail(path, "cannot be read", errno);
  const auto remove = [&](int from, const std::string& name, int flags) {
    return uninterrupted([&] { return calls.unlink_at(from, name, flags); }) == 0 || errno == ENOENT;
  };
  for (const std::string& name : names)
    if (!remove(directory.number(), name, 0)) fail(path + "/" + name, "cannot be removed", errno);
  if (!remove(AT_FDCWD, path, AT_REMOVEDIR)) fail(path, "cannot be removed", errno);
}

void remove_file(SystemCalls& calls, const std::string& path) noexcept { calls.unlink_at(AT_FDCWD, path, 0); }

ReplacementFile::ReplacementFile(SystemCalls& calls, const std::string& path) : calls_(calls) {
  std::error_code problem;
  const fs::path target = fs::weakly_canonical(fs::absolute(path, problem), problem);
  require<ConfigError>(!path.empty() && fs::is_directory(target.parent_path(), problem), path,
                       ": there is no such folder; make it first");
  require<ConfigError>(!fs::is_directory(target, problem), path, ": is a folder, and a file is to be written");
  static std::atomic<unsigned> count{0};  // several threads may write
  target_ = target.string();
  temporary_ = say(target_, ".partial-", ::getpid(), "-", count++);
}

// The other constructor has completed the object, so that the destructor removes the file if `fill` throws.
ReplacementFile::ReplacementFile(SystemCalls& calls, const std::string& path, std::uint64_t size,
                                 const std::function<void(NewFile&)>& fill)
    : ReplacementFile(calls, path) {
  remove_file(calls, temporary_);  // of a dead process of the same number
  NewFile file(calls, temporary_, size);
  fill(file);
  file.finish();
}

ReplacementFile::~ReplacementFile() {
  if (!temporary_.empty()) remove_file(calls_, temporary_);
}

void ReplacementFile::commit() {
  rename_path(calls_, temporary_, target_);
  temporary_.clear();
  sync_directory(calls_, fs::path(target_).parent_path().string());
}

void replace_file(SystemCalls& calls, const std::string& path, std::uint64_t size,
                  const std::function<void(NewFile&)>& fill) {
  ReplacementFile(calls, path, size, fill).commit();
}

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
    const ssize_t done = uninterrupted([&] { return calls_->pread(file_.number(), into.data(), count, offset); });
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
