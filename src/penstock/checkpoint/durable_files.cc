#include "penstock/checkpoint/durable_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>

#include "penstock/base/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

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

}  // namespace penstock
