// What the stages of several ranks and replicas that hold the same parameters exchange: gradients, which are summed
// over all uses and replicas and measured, and values, which are copied.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "penstock/model/value.h"
#include "penstock/rank/job.h"
#include "penstock/rank/stage.h"

namespace penstock::rank {

/// The gradients of a rank's stages on their way to the update. The owner stage of a tied parameter sums the gradients
/// of all uses and sends the total to the other stages. Used on its rank's thread. Sending never blocks, and each rank
/// sends all its messages before it waits, so that no order of the ranks' instructions can deadlock. The waits are
/// where the schedule places REDUCE, NORM and STEP.
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
  void sum_replicas(const Stage& stage, Traffic traffic, const std::vector<std::size_t>& chosen, Tensors& gradients);

  const StagePlacement& placement_;
  const RankStages& stages_;
  std::uint64_t step_ = 0;                // part of message tags
  std::map<StageId, Tensors> gradients_;  // by stage: per parameter
  bool ties_pending_ = false;             // REDUCE has sent uses of tied parameters; finish_ties() must receive totals
};

/// Copies of parameters and buffers: those on several stages and replicas, which have to be equal, and those from
/// before a step. Used on its rank's thread.
class StateCopies {
 public:
  /// `placement` and `stages` must outlive it.
  StateCopies(const StagePlacement& placement, const RankStages& stages) : placement_(placement), stages_(stages) {}

  /// Replica 0's owner stage sends the value of each parameter to the other stages that use it, and replica 0 sends
  /// parameters and buffers to the other replicas. `round` differs for each call. Called on every rank.
  void synchronise(std::uint64_t round);
  /// To be called before each job. Before an evaluation or inference that follows training, copies the buffers of
  /// replica 0 to the other replicas, as a saved model has them. Called on every rank.
  void share_buffers(const StepJob& job);
  /// To be called first in each job. Copies the buffers before a whole training step, whose F changes them.
  void keep_buffers(const StepJob& job);
  /// After the running training step was cancelled: the buffers get back the values that keep_buffers() has copied.
  void restore_buffers();

 private:
  /// The buffers of all stages, in one order.
  Tensors buffers() const;

  const StagePlacement& placement_;
  const RankStages& stages_;
  bool buffers_differ_ = false;  // between replicas: a training step ran since they were shared
  bool are_kept_ = false;
  Tensors kept_;  // reused from step to step
};

}  // namespace penstock::rank
