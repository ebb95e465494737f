// What one rank adds to a checkpoint, and takes from one: parameters and buffers, the optimisers' state, averages of
// weights. The tensors are called as in docs/checkpoints.md, whatever the partition.
#pragma once

#include <string>
#include <vector>

#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/checkpoint/rank_files.h"
#include "penstock/rank/rank_runner.h"

namespace penstock {

/// The tensors whose owner a rank is: on replica 0, those of its stages, of a tie on the owner stage. Refers to the
/// pipeline's memory where that is contiguous and on the CPU, and to copies elsewhere: to be used on the rank's thread,
/// before the next step.
class OwnedTensors {
 public:
  explicit OwnedTensors(RankRunner& runner);
  const RankTensors& tensors() const { return tensors_; }

 private:
  void add(std::vector<TensorBytes>& list, const std::string& name, const torch::Tensor& tensor);

  RankTensors tensors_;
  std::vector<torch::Tensor> memory_;  // keeps the bytes alive
};

/// Compares the checksums of all tensors that restore() reads. Throws DataError where one does not match.
void require_undamaged(RankRunner& runner, const Checkpoint& checkpoint);

/// Reads everything of `checkpoint` that the rank's stages use into them, owned or not. Called on the rank's thread.
/// Throws DataError where a checksum does not match, and ConfigError where the checkpoint's optimiser does not fit.
/// Then some values have been replaced, and others not.
void restore(RankRunner& runner, const Checkpoint& checkpoint);

}  // namespace penstock
