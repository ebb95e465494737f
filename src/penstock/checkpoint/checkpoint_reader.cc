#include "penstock/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <map>
#include <sstream>
#include <tuple>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/durable_files.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view name_begin = "step-";
constexpr std::size_t step_digits = 8;

/// The checksum of `size` bytes of `file` from `offset`.
Checksum checksum_in(const ReadFile& file, std::uint64_t offset, std::uint64_t size) {
  constexpr std::uint64_t piece_size = std::uint64_t{1} << 20;
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(size, piece_size)));
  RunningChecksum sum;
  while (size > 0) {
    const std::span now(piece.data(), static_cast<std::size_t>(std::min(size, piece_size)));
    file.read(offset, now);
    sum.add(now);
    offset += now.size();
    size -= now.size();
  }
  return sum.result();
}

[[noreturn]] void fail_checksum(const std::string& path, const std::string& what, const Checksum& found,
                                const Checksum& recorded) {
  throw DataError(say("'", path, "'", what, " is damaged: its checksum is ", to_string(found), ", and was ",
                      to_string(recorded), " when it was written"));
}

std::string tensor_text(const TensorRecord& tensor) { return say(", tensor '", printable(tensor.name), "'"); }

/// The tensors of a file with the checksums from its metadata.
std::vector<TensorRecord> checked_tensors(const SafetensorsHeader& header, const std::string& path) {
  const auto found = header.metadata.find(tensor_checksums_key);
  std::string_view sums = found == header.metadata.end() ? std::string_view() : found->second;
  std::vector<TensorRecord> tensors;
  for (const TensorPlace& place : header.tensors) {
    const auto sum = checksum_from(sums.substr(0, sums.find(' ')));
    require<DataError>(sum.has_value(), path, ": its metadata has no checksum of the tensor '", printable(place.name),
                       "'");
    tensors.push_back({place.name, place.type, place.shape, *sum});
    sums.remove_prefix(std::min(sums.size(), sums.find(' ')));
    if (!sums.empty()) sums.remove_prefix(1);
  }
  require<DataError>(sums.empty(), path, ": its metadata has more checksums than it has tensors");
  return tensors;
}

/// Of version 1, whose manifest has the tensors.
void require_recorded(const SafetensorsHeader& header, const FileRecord& recorded, const std::string& path) {
  const bool fits =
      std::equal(header.tensors.begin(), header.tensors.end(), recorded.tensors.begin(), recorded.tensors.end(),
                 [](const TensorPlace& place, const TensorRecord& record) {
                   return place.name == record.name && place.type == record.type && place.shape == record.shape;
                 });
  require<DataError>(fits, path, " has other tensors than ", manifest_name, " records");
}

/// Appends one line for each DataError that `check` throws.
template <class Check>
void note_damage(std::vector<std::string>& lines, Check&& check) {
  try {
    check();
  } catch (const DataError& error) {
    lines.emplace_back(error.what());
  }
}

/// Whether the name is no longer there, as after a writer has removed the checkpoint. False for a symbolic link that
/// leads nowhere, which stays where it is, and where the system does not say.
bool is_gone(const std::string& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() == fs::file_type::not_found;
}

/// The newest complete checkpoint; nothing if a writer has changed the folder meanwhile. Throws as newest_checkpoint().
std::optional<NewestCheckpoint> look_for_newest(const std::string& folder, CheckpointCheck check, SystemCalls& calls) {
  NewestCheckpoint newest;
  std::optional<std::string> not_readable;  // the problem of the newest that may be whole
  const std::vector<CheckpointPlace> places = list_checkpoints(folder, calls);
  for (const CheckpointPlace& place : places) {
    OpenedCheckpoint opened = open_checkpoint(place.path, calls);
    if (!opened.checkpoint) {
      if (is_gone(place.path)) return std::nullopt;
      if (opened.may_be_whole && !not_readable) not_readable = opened.problem;
      newest.damaged.push_back(std::move(opened.problem));
      continue;
    }
    std::vector<std::string> lines;
    if (check == CheckpointCheck::checksums) lines = opened.checkpoint->damage();
    if (lines.empty()) {
      newest.checkpoint = std::move(opened.checkpoint);
      return newest;
    }
    newest.damaged.insert(newest.damaged.end(), lines.begin(), lines.end());
  }
  if (list_checkpoints(folder, calls) != places) return std::nullopt;
  if (not_readable) throw NotReadable(*not_readable);
  return newest;
}

}  // namespace

std::string checkpoint_name(std::int64_t step, std::int64_t attempt) {
  const std::string digits = std::to_string(step);
  return say(name_begin, std::string(digits.size() < step_digits ? step_digits - digits.size() : 0, '0'), digits,
             attempt > 1 ? say("-", attempt) : std::string());
}

std::optional<CheckpointPlace> place_of_checkpoint(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  if (!name.starts_with(name_begin)) return std::nullopt;
  const std::string_view rest = std::string_view(name).substr(name_begin.size());
  const std::size_t dash = rest.find('-');
  const auto step = number_of<std::int64_t>(rest.substr(0, dash));
  const auto attempt = dash == std::string_view::npos ? 1 : number_of<std::int64_t>(rest.substr(dash + 1));
  if (!step || !attempt || name != checkpoint_name(*step, *attempt)) return std::nullopt;
  return CheckpointPlace{path, *step, *attempt};
}

std::vector<CheckpointPlace> list_checkpoints(const std::string& folder, SystemCalls& calls) {
  std::vector<std::string> names;
  const int problem = list_names(calls, folder, names);
  if (problem != 0) {
    const std::string failed = say("the folder of checkpoints '", folder, "' cannot be read: ", error_text_of(problem));
    // A folder that is not there, or is closed to this user, is a wrong one. Other errors come from a disk.
    if (is_absence(problem) || problem == EACCES) throw DataError(failed);
    throw Failure(failed);
  }
  std::vector<CheckpointPlace> places;
  for (const std::string& name : names)
    if (auto place = place_of_checkpoint((fs::path(folder) / name).string())) places.push_back(std::move(*place));
  std::sort(places.begin(), places.end(), [](const CheckpointPlace& a, const CheckpointPlace& b) {
    return std::tie(a.step, a.attempt) > std::tie(b.step, b.attempt);
  });
  return places;
}

bool may_exist(const std::string& path) {
  std::error_code ignored;
  return fs::status(path, ignored).type() != fs::file_type::not_found;
}

bool is_checkpoint(const std::string& path) {
  std::error_code ignored;
  const fs::path directory = fs::path(path) / "";  // with a "/" at its end
  return fs::exists(directory / manifest_name, ignored) ||
         place_of_checkpoint(directory.parent_path().string()).has_value();
}

std::string folder_of_checkpoints(const std::string& path) {
  if (!is_checkpoint(path)) return path;
  const fs::path folder = (fs::path(path) / "").parent_path().parent_path();
  return folder.empty() ? "." : folder.string();
}

std::vector<std::string> checkpoint_paths(const std::string& path, SystemCalls& calls) {
  if (is_checkpoint(path)) return {path};
  std::vector<std::string> paths;
  for (const CheckpointPlace& place : list_checkpoints(path, calls)) paths.push_back(place.path);
  return paths;
}

Checkpoint::Checkpoint(const std::string& directory, SystemCalls& calls) : directory_(directory) {
  const std::string path = directory + "/" + manifest_name;
  std::error_code ignored;
  require<DataError>(
      !fs::is_directory(directory, ignored) || fs::symlink_status(path, ignored).type() != fs::file_type::not_found,
      "'", directory, "' is not a complete checkpoint: it has no ", manifest_name);
  manifest_ = read_manifest(ReadFile(calls, path, SymbolicLinks::refused).text(largest_manifest), say("'", path, "'"));
  if (const auto place = place_of_checkpoint(directory))
    require<DataError>(place->step == manifest_.step, "'", directory, "' holds the checkpoint of step ",
                       manifest_.step);
  for (const FileRecord& file : manifest_.files) {
    const ReadFile& found = files_.emplace_back(calls, directory + "/" + file.name, SymbolicLinks::refused);
    require<DataError>(found.size() == file.bytes, "'", found.path(), "' is damaged: it has ", found.size(),
                       " bytes, and had ", file.bytes, " when it was written");
  }
  metadata_.resize(files_.size());
  for (std::size_t file = 0; file < files_.size(); ++file)
    manifest_.files[file].kind == FileKind::text ? check_text(file) : read_header(file);
}

void Checkpoint::check_text(std::size_t file) const {
  const Checksum found = checksum_in(files_[file], 0, files_[file].size());
  const Checksum& recorded = manifest_.files[file].checksum;
  if (found != recorded) fail_checksum(files_[file].path(), "", found, recorded);
}

/// Compares the header with its checksum before it is read.
void Checkpoint::read_header(std::size_t file) {
  FileRecord& recorded = manifest_.files[file];
  const std::string path = say("'", files_[file].path(), "'");
  const std::uint64_t header_bytes = safetensors_data_begin(files_[file]);
  const bool is_version_1 = recorded.header_bytes == 0;
  require<DataError>(is_version_1 || header_bytes == recorded.header_bytes, path, " is damaged: its header has ",
                     header_bytes, " bytes, and had ", recorded.header_bytes, " when it was written");
  const Checksum found = checksum_in(files_[file], 0, header_bytes);
  if (found != recorded.checksum) fail_checksum(files_[file].path(), ": its header", found, recorded.checksum);
  SafetensorsHeader header = read_safetensors_header(files_[file]);
  if (is_version_1)
    require_recorded(header, recorded, path);
  else
    recorded.tensors = checked_tensors(header, path);
  recorded.header_bytes = header_bytes;
  header.metadata.erase(tensor_checksums_key);
  if (const auto names = header.metadata.find(frozen_key); names != header.metadata.end()) {
    if (!frozen_) frozen_.emplace();
    std::istringstream lines(names->second);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t tab = line.find('\t');
      (*frozen_)[line.substr(0, tab)] = tab == std::string::npos ? std::nullopt : checksum_from(line.substr(tab + 1));
    }
    header.metadata.erase(names);
  }
  metadata_[file] = std::move(header.metadata);
  note_tensors(file);
}

void Checkpoint::note_tensors(std::size_t file) {
  const FileRecord& recorded = manifest_.files[file];
  auto& tensors = recorded.kind == FileKind::model ? model_ : optimizer_;
  std::uint64_t offset = recorded.header_bytes;
  for (std::size_t t = 0; t < recorded.tensors.size(); ++t) {
    const TensorRecord& tensor = recorded.tensors[t];
    require<DataError>(tensors.emplace(tensor.name, StoredTensor{file, t, offset}).second, "'", directory_,
                       "' has the tensor '", printable(tensor.name), "' twice");
    offset += size_in_bytes(tensor.type, tensor.shape).value_or(0);
  }
}

std::optional<StoredTensor> Checkpoint::find(FileKind kind, const std::string& name) const {
  const auto& tensors = kind == FileKind::model ? model_ : optimizer_;
  const auto found = tensors.find(name);
  if (found == tensors.end()) return std::nullopt;
  return found->second;
}

void Checkpoint::check(const StoredTensor& tensor) const {
  const TensorRecord& wanted = record(tensor);
  const std::uint64_t size = size_in_bytes(wanted.type, wanted.shape).value_or(0);
  const Checksum found = checksum_in(files_[tensor.file], tensor.offset, size);
  if (found != wanted.checksum) fail_checksum(files_[tensor.file].path(), tensor_text(wanted), found, wanted.checksum);
}

void Checkpoint::read(const StoredTensor& tensor, std::span<std::byte> into) const {
  const TensorRecord& wanted = record(tensor);
  require<InternalError>(size_in_bytes(wanted.type, wanted.shape) == into.size(), "tensor '", printable(wanted.name),
                         "' of shape ", shape_text(wanted.shape), " is read into ", into.size(), " bytes");
  files_[tensor.file].read(tensor.offset, into);
  const Checksum found = checksum_of(std::span<const std::byte>(into));
  if (found != wanted.checksum) fail_checksum(files_[tensor.file].path(), tensor_text(wanted), found, wanted.checksum);
}

std::string Checkpoint::text(std::size_t file) const {
  std::string text = files_[file].text(manifest_.files[file].bytes);
  const Checksum found = checksum_of(text);
  if (found != manifest_.files[file].checksum)
    fail_checksum(files_[file].path(), "", found, manifest_.files[file].checksum);
  return text;
}

void Checkpoint::check_file(std::size_t file, std::vector<std::string>& damage) const {
  const FileRecord& recorded = manifest_.files[file];
  if (recorded.kind == FileKind::text) return note_damage(damage, [&] { check_text(file); });
  for (const TensorRecord& tensor : recorded.tensors)
    note_damage(damage, [&] { check(*find(recorded.kind, tensor.name)); });
}

std::vector<std::string> Checkpoint::damage() const {
  std::vector<std::string> lines;
  for (std::size_t file = 0; file < files_.size(); ++file) check_file(file, lines);
  return lines;
}

OpenedCheckpoint open_checkpoint(const std::string& path, SystemCalls& calls) {
  OpenedCheckpoint opened{path};
  try {
    opened.checkpoint.emplace(path, calls);
  } catch (const DataError& error) {
    opened.problem = error.what();
    opened.may_be_whole = dynamic_cast<const NotReadable*>(&error) != nullptr;
  }
  return opened;
}

NewestCheckpoint newest_checkpoint(const std::string& folder, CheckpointCheck check, SystemCalls& calls) {
  // A writer removes an old one only after it has written a newer one, so that each attempt sees another folder.
  for (;;)
    if (auto newest = look_for_newest(folder, check, calls)) return std::move(*newest);
}

void visit_checkpoints(const std::string& path, const std::function<void(const OpenedCheckpoint&)>& visit,
                       SystemCalls& calls) {
  const bool is_one = is_checkpoint(path);
  // If a writer has removed all that were listed, it has written newer ones before.
  for (bool is_listed_again = true; is_listed_again;) {
    const std::vector<std::string> paths = checkpoint_paths(path, calls);
    is_listed_again = !paths.empty();
    for (const std::string& each : paths) {
      const OpenedCheckpoint opened = open_checkpoint(each, calls);
      if (!opened.checkpoint && !is_one && is_gone(each)) continue;
      is_listed_again = false;
      visit(opened);
    }
  }
}

}  // namespace penstock
