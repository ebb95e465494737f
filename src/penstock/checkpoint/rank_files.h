// The tensors of one pipeline rank, and the files of a checkpoint that hold them. Free of LibTorch.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/manifest.h"
#include "penstock/checkpoint/safetensors_header.h"

namespace penstock {

/// What one pipeline rank adds to a checkpoint. A tensor that several ranks use belongs to one of them.
struct RankTensors {
  std::int64_t owner = 0;  // the pipeline rank
  std::int64_t ranks = 1;  // of the pipeline
  std::vector<TensorBytes> model = {};
  std::vector<TensorBytes> optimizer = {};
  std::set<std::string> trained = {};  // names of the tensors of `model` that an optimiser may change
  FrozenParameters frozen = {};        // the other parameters
};

/// A copy of a rank's tensors, in one piece of memory, from which a checkpoint is written while training changes the
/// originals. Not thread-safe.
class RankSnapshot {
 public:
  /// Copies all numbers of `tensors`. The memory of a former call is used again if it suffices.
  void take(const RankTensors& tensors);
  /// Refers to the copy, until the next take().
  const RankTensors& tensors() const { return copy_; }
  std::size_t bytes() const { return capacity_; }

 private:
  RankTensors copy_;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
};

/// A tensor has values that no later step of a training can mend, so that no checkpoint with it is kept.
class SpoiledTensor : public Failure {
 public:
  using Failure::Failure;
};

/// What `values` of this type contain that cannot be mended: "not a number" or "infinite"; empty if nothing. NaN
/// cannot, in any tensor, and infinities cannot in a trained parameter. Buffers and frozen parameters may be masks,
/// which consist of infinities, and the state of an optimiser may begin with them.
std::string_view spoiled_values(TensorType type, std::span<const std::byte> values, bool is_trained);

/// Writes a rank's files into `directory`, which CheckpointWriter::begin() has made, and waits for the disk: one for
/// the model, one for the optimiser's state unless there is none. The checksums are taken from the memory. `metadata`
/// is stored in the model's file, and the checksums of the tensors in both. Returns the records of the files, for
/// CheckpointWriter::commit(). Throws Failure, which names the file, SpoiledTensor for values that cannot be mended,
/// and ConfigError for tensors that the format does not support.
std::vector<FileRecord> write_rank_files(SystemCalls& calls, const std::string& directory, const RankTensors& tensors,
                                         const std::map<std::string, std::string>& metadata);

}  // namespace penstock
