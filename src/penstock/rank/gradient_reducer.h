// The gradients of a rank's stages on their way to the update: summed over all uses of a parameter and over the
// replicas, and measured.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "penstock/rank/stage.h"
#include "penstock/rank/stage_placement.h"
#include "penstock/rank/step_job.h"
#include "penstock/rank/tied_gradients.h"

namespace penstock {

/// Used on its rank's thread. Sending never blocks, and the waits are where the schedule places REDUCE, NORM and STEP.
class GradientReducer {
 public:
  /// `placement` and `stages` must outlive it.
  GradientReducer(const StagePlacement& placement, const RankStages& stages) : placement_(placement), stages_(stages) {}

  /// To be called before each part of a step. Starts the gradients anew, or continues those of earlier calls.
  void begin(const StepJob& job);
  /// Discards all sums; to be called after an update and after a failure.
  void clear();

  /// By parameter of `stage`: summed over its uses on the stage, and after REDUCE over ties and replicas. Undefined for
  /// a parameter without a gradient.
  Tensors& gradients_of(const Stage& stage);
  /// Removes and returns them.
  Tensors take(const Stage& stage);

  /// REDUCE: sends the uses of tied parameters to their owners, and sums all other gradients over the replicas.
  void reduce(const Stage& stage);
  /// Receives the sums of tied parameters, where a REDUCE has sent some. All stages of this rank that own parameters
  /// sum and send before any stage waits for the totals of others.
  void finish_ties();
  /// Divides all gradients.
  void divide(double divisor);
  /// The 2-norm of the gradients of all ranks of this replica, each parameter counted once: a float64 scalar on
  /// `device`. Every rank gets the same bits, whatever the partition. Called on every rank.
  torch::Tensor norm(c10::Device device);

 private:
  TieRoute tie_route() const { return {placement_, step_}; }
  void sum_replicas(const Stage& stage, Traffic traffic, const std::vector<std::size_t>& chosen, Tensors& gradients);

  const StagePlacement& placement_;
  const RankStages& stages_;
  std::uint64_t step_ = 0;                // part of message tags
  std::map<StageId, Tensors> gradients_;  // by stage: per parameter
  bool ties_pending_ = false;             // REDUCE has sent uses of tied parameters; finish_ties() must receive totals
};

}  // namespace penstock
