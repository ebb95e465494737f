// Writes checkpoints so that at every moment, and after a power failure, the newest complete one is whole. Free of
// LibTorch. docs/checkpoints.md describes the protocol.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/manifest.h"

namespace penstock {

struct CheckpointFolder {
  std::string path = {};
  int keep = 2;  // complete checkpoints to keep, at least 2
  /// The step from which training begins: 0, or that of the checkpoint from which it resumes.
  std::int64_t first_step = 0;
  /// Paths of checkpoints that were found to be damaged, which the writer neither counts nor removes.
  std::set<std::string> damaged = {};
};

struct RemovedCheckpoints {
  std::vector<std::string> paths = {};
  std::vector<std::string> remarks = {};  // why something old could not be removed
};

/// The one writer of a folder of checkpoints, in the process that commits them. A checkpoint is written in four parts:
///
///   begin()             here: makes a temporary directory
///   write_rank_files()  in every process, for its own ranks, which may take place at the same time
///   commit()            here, with the records of all processes: now the checkpoint exists, on the disk
///   remove_old()        here: removes older ones
///
/// An error in any part leaves former checkpoints as they are. Not thread-safe, but may be used by one thread after
/// another.
class CheckpointWriter {
 public:
  /// Makes the folder if it is missing, and locks it as long as this object exists. Throws ConfigError if `keep` is
  /// less than 2, another process writes there, or the folder has a complete checkpoint of a later step than
  /// `first_step`, which `resume` would prefer to those that are written now; Failure if the folder cannot be made.
  explicit CheckpointWriter(const CheckpointFolder& folder, SystemCalls& calls = SystemCalls::real());
  /// Abandons what was begun.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Adds paths to CheckpointFolder::damaged.
  void add_damaged(const std::set<std::string>& paths);

  /// Returns the path of the temporary directory. Abandons a former attempt that was not committed. If the folder was
  /// moved or replaced since it was locked, locks the one that now has its name, which is made if it is missing; the
  /// next remove_old() has a remark of this. Throws Failure, also if another process writes there.
  std::string begin(std::int64_t step);

  /// Adds `texts` and the manifest to the temporary directory, makes it the checkpoint of manifest.step (the
  /// step given to begin()). manifest.files are the records of all processes. When it returns, the checkpoint survives
  /// a power failure. Throws Failure, after which the attempt is abandoned.
  CommittedCheckpoint commit(Manifest manifest, const std::vector<CheckpointText>& texts = {});

  /// After commit(): removes the oldest complete checkpoints but `keep`, and what abandoned attempts have left. Removes
  /// no symbolic link, and no checkpoint in whose directory somebody has added a file. A problem with old ones is a
  /// remark.
  RemovedCheckpoints remove_old();

  /// Removes the temporary directory, if there is one.
  void abandon() noexcept;

 private:
  std::string publish(Manifest manifest, const std::vector<CheckpointText>& texts);
  void require_files(const Manifest& manifest) const;
  std::string free_name(std::int64_t step) const;
  /// None if it cannot be read, and may be complete.
  std::optional<bool> is_complete(const CheckpointPlace& place) const;
  void require_no_later(std::int64_t step) const;
  /// Whether the folder's path still leads to what this object has locked.
  bool holds_folder() const;
  void lock_again(std::int64_t step);
  std::string foreign_file(const Checkpoint& checkpoint) const;
  void remove_temporary(std::vector<std::string>& remarks) const;

  CheckpointFolder folder_;
  SystemCalls& calls_;
  std::optional<OpenFile> lock_;  // always there
  std::optional<std::string> temporary_;
  std::int64_t step_ = 0;
  std::string newest_;                        // the directory that the last commit() made
  std::set<std::string> damaged_;             // in their canonical form
  std::set<std::string> with_foreign_files_;  // old checkpoints of which a remark was made
  std::vector<std::string> remarks_;          // for the next remove_old()
};

}  // namespace penstock
