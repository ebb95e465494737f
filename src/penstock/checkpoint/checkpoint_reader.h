// Finds, checks and reads checkpoints. Nothing is ever changed or deleted. Free of LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/manifest.h"

namespace penstock {

/// A checkpoint's directory, "step-00000123". If one of the same step exists when it is written, "-2" is appended.
struct CheckpointPlace {
  std::string path;
  std::int64_t step = 0;
  std::int64_t attempt = 1;
  friend bool operator==(const CheckpointPlace&, const CheckpointPlace&) = default;
};

std::string checkpoint_name(std::int64_t step, std::int64_t attempt);
/// By its name only, whether or not it exists; none for the name of something else.
std::optional<CheckpointPlace> place_of_checkpoint(const std::string& path);

/// All checkpoints in `folder`, complete or not, newest first. Temporary directories are not checkpoints. Throws
/// DataError for a folder that is missing, is none or is closed to this user, and Failure if reading it fails.
std::vector<CheckpointPlace> list_checkpoints(const std::string& folder, SystemCalls& calls = SystemCalls::real());

/// Whether something is at `path`; true if the system does not say, so that reading it will.
bool may_exist(const std::string& path);
/// Whether `path` is one checkpoint, complete or not, and no folder of them.
bool is_checkpoint(const std::string& path);
/// The folder of checkpoints that `path` is or, if it is one checkpoint, is in.
std::string folder_of_checkpoints(const std::string& path);
/// `path` itself if it is one checkpoint; else all checkpoints of the folder, newest first. Throws DataError if the
/// folder cannot be read.
std::vector<std::string> checkpoint_paths(const std::string& path, SystemCalls& calls = SystemCalls::real());

/// The place of a tensor in a Checkpoint.
struct StoredTensor {
  std::size_t file = 0;      // in Manifest::files
  std::size_t tensor = 0;    // in FileRecord::tensors
  std::uint64_t offset = 0;  // of its numbers in the file
};

/// A directory with a manifest that fits: sizes, headers and texts of all files are what it records. The checksums of
/// tensors are compared when they are read. Its files stay open, so that it can be read even if a writer removes it.
/// Thread-safe.
class Checkpoint {
 public:
  /// Throws DataError, which names the file, for a checkpoint that is damaged, incomplete or foreign, and NotReadable
  /// for one of a later version, or where the system refuses to read a file.
  explicit Checkpoint(const std::string& directory, SystemCalls& calls = SystemCalls::real());

  const std::string& directory() const { return directory_; }
  /// With the tensors of its files.
  const Manifest& manifest() const { return manifest_; }

  /// A tensor of the model, or of the optimiser's state; none if there is none of this name.
  std::optional<StoredTensor> find(FileKind kind, const std::string& name) const;
  const TensorRecord& record(const StoredTensor& tensor) const {
    return manifest_.files[tensor.file].tensors[tensor.tensor];
  }
  /// Compares the checksum of a tensor. Throws DataError, which names file and tensor. Takes one megabyte of memory.
  void check(const StoredTensor& tensor) const;
  /// Copies the numbers of a tensor into memory of exactly their size, and compares their checksum. Only these bytes of
  /// the file are read. Throws DataError, which names file and tensor.
  void read(const StoredTensor& tensor, std::span<std::byte> into) const;
  /// The contents of a file of the kind `text`, by its number in Manifest::files; its checksum is compared.
  std::string text(std::size_t file) const;
  /// The metadata of a file of the kind `model` or `optimizer`.
  const std::map<std::string, std::string>& metadata(std::size_t file) const { return metadata_[file]; }

  /// The parameters that did not train; none in a checkpoint of a version that did not record them.
  const std::optional<FrozenParameters>& frozen() const { return frozen_; }

  /// Compares all checksums. Returns one line for each damaged file or tensor; none if all is well. Takes
  /// one megabyte of memory, whatever the size of the checkpoint.
  std::vector<std::string> damage() const;

 private:
  void check_text(std::size_t file) const;
  void read_header(std::size_t file);
  void note_tensors(std::size_t file);
  void check_file(std::size_t file, std::vector<std::string>& damage) const;

  std::string directory_;
  Manifest manifest_;
  std::vector<ReadFile> files_;                               // as many as in the manifest
  std::vector<std::map<std::string, std::string>> metadata_;  // likewise
  std::map<std::string, StoredTensor> model_, optimizer_;     // by name
  std::optional<FrozenParameters> frozen_ = {};
};

/// A checkpoint, or why it cannot be opened.
struct OpenedCheckpoint {
  std::string path;
  std::optional<Checkpoint> checkpoint = {};
  std::string problem = {};   // why there is none
  bool may_be_whole = false;  // though it cannot be opened: NotReadable
};

/// Opens the checkpoint `path`. Throws no DataError.
OpenedCheckpoint open_checkpoint(const std::string& path, SystemCalls& calls = SystemCalls::real());

/// Opens one checkpoint after the other, newest first, or `path` itself if it is one checkpoint. Leaves out those of a
/// folder that a writer has removed since the folder was listed. Calls nothing if there is no checkpoint. Throws
/// DataError if the folder cannot be read.
void visit_checkpoints(const std::string& path, const std::function<void(const OpenedCheckpoint&)>& visit,
                       SystemCalls& calls = SystemCalls::real());

/// What newest_checkpoint() compares: sizes, manifest, texts and headers, or all checksums too, for which it reads all
/// files.
enum class CheckpointCheck { structure, checksums };

struct NewestCheckpoint {
  std::optional<Checkpoint> checkpoint = {};  // none if there is no complete one
  std::vector<std::string> damaged = {};      // one line for each that was skipped
};

/// The newest checkpoint in `folder` that is complete. Throws NotReadable where none is found, and one that was skipped
/// may be whole.
NewestCheckpoint newest_checkpoint(const std::string& folder, CheckpointCheck check,
                                   SystemCalls& calls = SystemCalls::real());

}  // namespace penstock
