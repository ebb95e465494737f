#include "penstock/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <map>
#include <tuple>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/not_readable.h"
#include "penstock/checkpoint/read_file.h"
#include "penstock/checkpoint/weight_index.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view name_begin = "step-";
constexpr std::size_t step_digits = 8;

/// A number without sign and blanks; none for anything else.
std::optional<std::int64_t> whole_number_of(std::string_view digits) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || digits.front() == '-' || error != std::errc() || end != digits.data() + digits.size())
    return std::nullopt;
  return number;
}

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

/// Appends one line for each DataError that `check` throws.
template <class Check>
void note_damage(std::vector<std::string>& lines, Check&& check) {
  try {
    check();
  } catch (const DataError& error) {
    lines.emplace_back(error.what());
  }
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
  const auto step = whole_number_of(rest.substr(0, dash));
  const auto attempt = dash == std::string_view::npos ? 1 : whole_number_of(rest.substr(dash + 1));
  if (!step || !attempt || name != checkpoint_name(*step, *attempt)) return std::nullopt;
  return CheckpointPlace{path, *step, *attempt};
}

std::vector<CheckpointPlace> list_checkpoints(const std::string& folder, SystemCalls& calls) {
  std::vector<std::string> names;
  const int problem = list_names(calls, folder, names);
  if (problem != 0) {
    const std::string failed = say("the folder of checkpoints '", folder, "' cannot be read: ", error_text_of(problem));
    // A folder that is not there, or is closed to this user, is a wrong one. Other errors are those of a disk.
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
      "'", directory, "' is no complete checkpoint: it has no ", manifest_name);
  manifest_ = read_manifest(ReadFile(calls, path, SymbolicLinks::refused).text(largest_manifest), say("'", path, "'"));
  if (const auto place = place_of_checkpoint(directory))
    require<DataError>(place->step == manifest_.step, "'", directory, "' holds the checkpoint of step ",
                       manifest_.step);
  for (const FileRecord& file : manifest_.files) {
    const ReadFile& found = files_.emplace_back(calls, directory + "/" + file.name, SymbolicLinks::refused);
    require<DataError>(found.size() == file.bytes, "'", found.path(), "' is damaged: it has ", found.size(),
                       " bytes, and had ", file.bytes, " when it was written");
    file.kind == FileKind::text ? check_text(files_.size() - 1) : check_header(files_.size() - 1);
  }
  note_tensors();
}

void Checkpoint::check_text(std::size_t file) const {
  const Checksum found = checksum_in(files_[file], 0, files_[file].size());
  const Checksum& recorded = manifest_.files[file].checksum;
  if (found != recorded) fail_checksum(files_[file].path(), "", found, recorded);
}

void Checkpoint::check_header(std::size_t file) const {
  const FileRecord& recorded = manifest_.files[file];
  const Checksum found = checksum_in(files_[file], 0, safetensors_data_begin(files_[file]));
  if (found != recorded.checksum) fail_checksum(files_[file].path(), ": its header", found, recorded.checksum);
  const SafetensorsHeader header = read_safetensors_header(files_[file]);
  const bool fits =
      std::equal(header.tensors.begin(), header.tensors.end(), recorded.tensors.begin(), recorded.tensors.end(),
                 [](const TensorPlace& place, const TensorRecord& record) {
                   return place.name == record.name && place.type == record.type && place.shape == record.shape;
                 });
  require<DataError>(fits, "'", files_[file].path(), "' has other tensors than ", manifest_name, " records");
}

void Checkpoint::note_tensors() {
  for (std::size_t f = 0; f < manifest_.files.size(); ++f) {
    const FileRecord& file = manifest_.files[f];
    std::uint64_t offset = file.bytes;  // the tensors lie in the order of their records, at the end of the file
    for (std::size_t t = file.tensors.size(); t-- > 0;) {
      offset -= size_in_bytes(file.tensors[t].type, file.tensors[t].shape).value_or(0);
      (file.kind == FileKind::model ? model_ : optimizer_)[file.tensors[t].name] = {f, t, offset};
    }
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

std::map<std::string, std::string> Checkpoint::metadata(std::size_t file) const {
  return read_safetensors_header(files_[file]).metadata;
}

void Checkpoint::check_index() const {
  std::map<std::string, std::string> recorded;
  for (const auto& [name, stored] : model_) recorded[name] = manifest_.files[stored.file].name;
  const auto index = std::find_if(manifest_.files.begin(), manifest_.files.end(),
                                  [](const FileRecord& file) { return file.name == weight_index_name; });
  require<DataError>(index != manifest_.files.end() && index->kind == FileKind::text, "'", directory_, "' has no ",
                     weight_index_name);
  const auto file = static_cast<std::size_t>(index - manifest_.files.begin());
  const std::string path = say("'", files_[file].path(), "'");
  require<DataError>(read_weight_index(text(file), path).files == recorded, path, " does not have the tensors that ",
                     manifest_name, " records");
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
  if (lines.empty()) note_damage(lines, [&] { check_index(); });
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

namespace {

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
