#include "penstock/checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view temporary_begin = ".tmp-", removed_begin = ".tmp-removed-";
constexpr const char* lock_name = ".lock";

bool is_all(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == std::string_view::npos;
}

/// Whether a writer chose this name for a directory: ".tmp-STEP-DIGITS" or ".tmp-removed-DIGITS". The user may have
/// others that begin so.
bool is_temporary_name(std::string_view name) {
  constexpr std::string_view decimal = "0123456789", hexadecimal = "0123456789abcdef";
  constexpr std::size_t random_size = 16;  // of random_digits()
  if (!name.starts_with(temporary_begin) || name.size() <= temporary_begin.size() + random_size) return false;
  const std::string_view begin = name.substr(0, name.size() - random_size);
  if (!is_all(name.substr(begin.size()), hexadecimal)) return false;
  return begin == removed_begin ||
         (begin.ends_with('-') &&
          is_all(begin.substr(temporary_begin.size(), begin.size() - temporary_begin.size() - 1), decimal));
}

OpenFile locked(SystemCalls& calls, const std::string& folder) {
  make_directories(calls, folder);
  const std::string path = folder + "/" + lock_name;
  OpenFile file = open_file(calls, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
  if (!file.is_open()) throw Failure(say("'", path, "' cannot be made: ", error_text_of(errno)));
  require<ConfigError>(lock_file(calls, file, path), folder,
                       ": another process writes checkpoints there: use one folder for each job");
  return file;
}

/// One path for all ways to write it.
std::string canonical(const std::string& path) {
  std::error_code problem;
  const fs::path one = fs::weakly_canonical(path, problem);
  return problem ? path : one.string();
}

/// A path without "/" at its end, so that its parent is the directory above.
CheckpointFolder checked(CheckpointFolder folder) {
  require<ConfigError>(folder.keep >= 2, "keep = ", folder.keep,
                       " checkpoints: at least 2 are kept, because the newest may turn out to be damaged");
  require<ConfigError>(!folder.path.empty(), "the folder of checkpoints has no name");
  require<ConfigError>(folder.path.find('\n') == std::string::npos,
                       "the folder of checkpoints has a line break in its name: choose another name");
  while (folder.path.size() > 1 && folder.path.back() == '/') folder.path.pop_back();
  std::error_code ignored;
  require<ConfigError>(!fs::exists(folder.path, ignored) || fs::is_directory(folder.path, ignored), folder.path,
                       ": is a file, and checkpoints need a folder");
  return folder;
}

}  // namespace

CheckpointWriter::CheckpointWriter(const CheckpointFolder& folder, SystemCalls& calls)
    : folder_(checked(folder)), calls_(calls), lock_(locked(calls, folder_.path)) {
  add_damaged(folder_.damaged);
  require_no_later(folder_.first_step);
}

CheckpointWriter::~CheckpointWriter() { abandon(); }

void CheckpointWriter::add_damaged(const std::set<std::string>& paths) {
  for (const std::string& path : paths) damaged_.insert(canonical(path));
}

void CheckpointWriter::require_no_later(std::int64_t step) const {
  for (const CheckpointPlace& place : list_checkpoints(folder_.path, calls_)) {
    if (place.step <= step) break;
    require<ConfigError>(!is_complete(place).value_or(true), folder_.path, ": has a checkpoint of step ", place.step,
                         ", and training begins at step ", step, ": resume from it, or use another folder");
  }
}

bool CheckpointWriter::holds_folder() const {
  struct stat locked {
  }, found{};
  return ::fstat(lock_->number(), &locked) == 0 && ::lstat((folder_.path + "/" + lock_name).c_str(), &found) == 0 &&
         locked.st_dev == found.st_dev && locked.st_ino == found.st_ino;
}

/// Locks the folder that now has the path of the former one, so that work goes on and no other job writes there.
void CheckpointWriter::lock_again(std::int64_t step) try {
  OpenFile lock = locked(calls_, folder_.path);
  require_no_later(step);
  lock_.emplace(std::move(lock));
  remarks_.push_back(say(folder_.path, ": was moved or replaced during the training; checkpoints from step ", step,
                         " on are in the folder that now has this name"));
} catch (const Misuse& misuse) {
  throw Failure(
      say("the folder of checkpoints was moved or replaced during the training, and the one that now has its ",
          "name cannot be used: ", misuse.what()));
}

std::string CheckpointWriter::begin(std::int64_t step) {
  abandon();
  if (!holds_folder()) lock_again(step);
  const std::string path = say(folder_.path, "/", temporary_begin, step, "-", random_digits());
  make_directory(calls_, path);
  temporary_ = path;
  step_ = step;
  return path;
}

void CheckpointWriter::abandon() noexcept {
  if (!temporary_) return;
  try {
    remove_directory(calls_, *temporary_);
  } catch (const std::exception&) {  // the next checkpoint that succeeds removes it
  }
  temporary_.reset();
}

CommittedCheckpoint CheckpointWriter::commit(Manifest manifest, const std::vector<CheckpointText>& texts) {
  require<InternalError>(temporary_ && manifest.step == step_, "a checkpoint of step ", manifest.step,
                         " is committed, and one of step ", step_, " was begun");
  CommittedCheckpoint committed;
  committed.step = step_;
  for (const FileRecord& file : manifest.files) committed.bytes += file.bytes;
  try {
    committed.directory = publish(std::move(manifest), texts);
  } catch (...) {
    abandon();
    throw;
  }
  newest_ = committed.directory;
  return committed;
}

/// Another host's files are here only if the file system is shared.
void CheckpointWriter::require_files(const Manifest& manifest) const {
  for (const FileRecord& file : manifest.files) {
    std::error_code problem;
    const std::string path = *temporary_ + "/" + file.name;
    const std::uint64_t bytes = fs::file_size(path, problem);
    require<Failure>(!problem, "'", path, "', which a rank has written, is not to be seen here: ", problem.message(),
                     "; the folder must be on a file system that all hosts share");
    require<Failure>(bytes == file.bytes, "'", path, "' has ", bytes, " bytes, and a rank has written ", file.bytes);
  }
}

std::string CheckpointWriter::publish(Manifest manifest, const std::vector<CheckpointText>& texts) {
  require<Failure>(holds_folder(), folder_.path, ": was moved or replaced while the checkpoint of step ", step_,
                   " was being written; its files are in the moved folder: move folders of checkpoints between saves");
  require_files(manifest);
  for (const auto& [name, text] : texts) {
    require<ConfigError>(is_plain_file_name(name), "a checkpoint cannot hold a file called '", name, "'");
    write_new_file(calls_, *temporary_ + "/" + name, {bytes_in(text)});
    manifest.files.push_back({.name = name, .bytes = text.size(), .checksum = checksum_of(text)});
  }
  const std::string last = write_manifest(manifest);
  write_new_file(calls_, *temporary_ + "/" + manifest_name, {bytes_in(last)});
  sync_directory(calls_, *temporary_);
  const std::string directory = free_name(step_);
  rename_path(calls_, *temporary_, directory);
  temporary_.reset();
  sync_directory(calls_, folder_.path);
  return directory;
}

std::optional<bool> CheckpointWriter::is_complete(const CheckpointPlace& place) const {
  if (damaged_.contains(canonical(place.path))) return false;
  const OpenedCheckpoint opened = open_checkpoint(place.path, calls_);
  if (opened.may_be_whole) return std::nullopt;
  return opened.checkpoint.has_value();
}

/// The first file in the directory of a checkpoint that is not one of its own; "" if there is none.
std::string CheckpointWriter::foreign_file(const Checkpoint& checkpoint) const {
  std::vector<std::string> names;
  const int problem = list_names(calls_, checkpoint.directory(), names);
  require<Failure>(problem == 0, "'", checkpoint.directory(), "' cannot be read: ", error_text_of(problem));
  std::set<std::string_view> own{manifest_name};
  for (const FileRecord& file : checkpoint.manifest().files) own.insert(file.name);
  const auto foreign =
      std::find_if(names.begin(), names.end(), [&](const std::string& name) { return !own.contains(name); });
  return foreign == names.end() ? "" : *foreign;
}

/// The directory of a new checkpoint: nothing that exists is ever overwritten.
std::string CheckpointWriter::free_name(std::int64_t step) const {
  std::int64_t attempt = 1;
  for (const CheckpointPlace& place : list_checkpoints(folder_.path, calls_))
    if (place.step == step && place.attempt >= attempt) attempt = place.attempt + 1;
  return folder_.path + "/" + checkpoint_name(step, attempt);
}

RemovedCheckpoints CheckpointWriter::remove_old() {
  RemovedCheckpoints removed;
  removed.remarks.swap(remarks_);
  if (!holds_folder()) return removed;  // what is there now may be another job's
  try {
    int kept = 0;
    for (const CheckpointPlace& place : list_checkpoints(folder_.path, calls_)) {
      // A damaged checkpoint is never deleted, and neither is one elsewhere that the user has linked here.
      std::error_code ignored;
      if (damaged_.contains(canonical(place.path)) || fs::is_symlink(place.path, ignored)) continue;
      const OpenedCheckpoint opened = open_checkpoint(place.path, calls_);
      if (!opened.checkpoint || ++kept <= folder_.keep || place.path == newest_) continue;
      if (const std::string foreign = foreign_file(*opened.checkpoint); !foreign.empty()) {
        if (with_foreign_files_.insert(place.path).second)
          removed.remarks.push_back(say("'", place.path, "' is not removed: it has '", printable(foreign),
                                        "', which is not a file of the checkpoint"));
        continue;
      }
      // A directory that is being removed must not look like a checkpoint, not even after a power failure.
      rename_path(calls_, place.path, say(folder_.path, "/", removed_begin, random_digits()));
      removed.paths.push_back(place.path);
    }
    if (!removed.paths.empty()) sync_directory(calls_, folder_.path);
    remove_temporary(removed.remarks);
  } catch (const std::exception& error) {
    removed.remarks.emplace_back(error.what());
  }
  return removed;
}

void CheckpointWriter::remove_temporary(std::vector<std::string>& remarks) const {
  std::vector<std::string> names;
  const int problem = list_names(calls_, folder_.path, names);
  require<Failure>(problem == 0, "'", folder_.path, "' cannot be read: ", error_text_of(problem));
  for (const std::string& name : names) {
    if (!is_temporary_name(name)) continue;
    try {
      remove_directory(calls_, folder_.path + "/" + name);
    } catch (const Failure& failure) {  // the others must not pile up because of this one
      remarks.emplace_back(failure.what());
    }
  }
}

}  // namespace penstock
