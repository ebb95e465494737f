// Sums gradients over the stages and replicas that hold the same parameters, and measures them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "penstock/model/value.h"
#include "penstock/rank/job.h"
#include "penstock/rank/shared_parameters.h"
#include "penstock/rank/stage.h"

namespace penstock::rank {

/// Which sums over replicas a replica gets: all, or for untied parameters only its rows (ReplicaRows). In other rows its
/// own gradients remain.
enum class ReducedRows { all, own };

/// The gradients of a rank's stages on their way to the update. The owner stage of a tied parameter sums the gradients
/// of all uses and sends the total to the other stages. Used on its rank's thread. It waits in the schedule's
/// REDUCE, NORM and STEP. Sending never blocks. For replicas, each rank sends all its messages before it waits; ties end
/// after the REDUCE of all stages (finish_ties()). So no order of the ranks' instructions can deadlock.
class GradientReducer {
 public:
  /// `placement` and `stages` must outlive it.
  GradientReducer(const StagePlacement& placement, const RankStages& stages) : placement_(placement), stages_(stages) {}

  /// To be called before each part of a step. Starts the gradients anew, or continues those of earlier calls.
  void begin(const StepJob& job);
  /// Discards all sums; to be called after an update and after a failure.
  void clear();

  /// By parameter of `stage`: summed over its uses on the stage, and after REDUCE over ties and replicas. Undefined for
  /// a parameter without a gradient. Uses up the stage's gradients: to be called after the last batch of a step.
  Tensors& gradients_of(const Stage& stage);
  /// The same, if further batches may add gradients.
  Tensors gradients_so_far(const Stage& stage) const;
  /// Removes and returns them.
  Tensors take(const Stage& stage);

  /// Sends the uses of tied parameters to their owners, and all other gradients to the replicas that sum them; to be
  /// called when the gradients of `stage` are complete, by REDUCE at the latest. Does not wait.
  void send(const Stage& stage);
  /// REDUCE: sums all gradients of untied parameters over the replicas.
  void reduce(const Stage& stage, ReducedRows which);
  /// Sums tied parameters over their uses, if a REDUCE has begun to; to be called after the REDUCE of all stages of this
  /// rank.
  void finish_ties();
  /// Divides all gradients.
  void divide(double divisor);
  /// The 2-norm of the gradients of all ranks of this replica, each parameter counted once: a float64 scalar on
  /// `device`. Every rank gets the same bits, whatever the partition. Called on every rank.
  torch::Tensor norm(c10::Device device);

 private:
  ReplicaGroup group_of(const Stage& stage) const { return {placement_, stage.id(), Traffic::reduce, step_}; }
  /// A piece of the totals of the tied parameters that `stage` owns: receives, sums and sends.
  void sum_tied(const Stage& stage, int piece);

  const StagePlacement& placement_;
  const RankStages& stages_;
  std::uint64_t step_ = 0;                // part of message tags
  std::map<StageId, Tensors> gradients_;  // by stage: per parameter
  std::set<StageId> sent_;                // stages whose gradients were sent
  bool ties_pending_ = false;             // REDUCE has sent uses of tied parameters; finish_ties() must receive totals
};

}  // namespace penstock::rank
