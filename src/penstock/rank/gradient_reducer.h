// Sums gradients over the stages and replicas that hold the same parameters, and measures them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "penstock/model/value.h"
#include "penstock/rank/job.h"
#include "penstock/rank/replica_sums.h"
#include "penstock/rank/shared_parameters.h"
#include "penstock/rank/stage.h"

namespace penstock::rank {

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

  /// To be called before the instruction that completes the gradients of `stage`: it sends each bucket to the replicas
  /// that sum it as soon as the bucket is complete, and sums this replica's rows of the earlier ones whose parts have
  /// arrived meanwhile. `which` as in reduce().
  void send_as_completed(Stage& stage, ReducedRows which);
  /// Sends the uses of tied parameters to their owners, and all other gradients that have not left to the replicas that
  /// sum them; to be called when the gradients of `stage` are complete, by REDUCE at the latest. Does not wait.
  void send(Stage& stage);
  /// REDUCE: sums all gradients of untied parameters over the replicas.
  void reduce(Stage& stage, ReducedRows which);
  /// Sums tied parameters over their uses, if a REDUCE has begun to; to be called after the REDUCE of all stages of this
  /// rank.
  void finish_ties();
  /// Divides all gradients.
  void divide(double divisor);
  /// The 2-norm of the gradients of all ranks of this replica, each parameter counted once: a float64 scalar on
  /// `device`. Every rank gets the same bits, whatever the partition. Called on every rank.
  torch::Tensor norm(c10::Device device);

 private:
  /// By parameter. Each sum is made once, because it may be made in one of the buffers that are its parts.
  struct Sums {
    Tensors gradients;
    std::vector<bool> is_made;

    void make(const layers::Gradients& of, std::size_t parameter);
  };
  /// The gradients of a stage on their way to the other replicas; no buckets if there are none.
  struct Leaving {
    std::vector<Bucket> buckets;
    std::vector<std::set<std::size_t>> awaited;  // by bucket: uses without their last gradient; empty: has left
    std::vector<bool> is_summed;                 // by bucket: this replica's rows
    bool has_left = false;                       // all, and the uses of tied parameters
  };

  ReplicaGroup group_of(const Stage& stage, std::size_t bucket) const;
  Leaving& leaving(const Stage& stage);
  void send_bucket(const Stage& stage, std::size_t bucket);
  void sum_bucket(const Stage& stage, std::size_t bucket, ReducedRows which);
  /// A piece of the totals of the tied parameters that `stage` owns: receives, sums and sends.
  void sum_tied(const Stage& stage, int piece);

  const StagePlacement& placement_;
  const RankStages& stages_;
  std::uint64_t step_ = 0;  // part of message tags
  std::map<StageId, Sums> sums_;
  std::map<StageId, Leaving> leaving_;
  bool ties_pending_ = false;  // REDUCE has sent uses of tied parameters; finish_ties() must receive totals
};

}  // namespace penstock::rank
