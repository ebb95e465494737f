// Copies of parameters and buffers: those on several stages and replicas, which have to be equal, and those from before
// a step.
#pragma once

#include <cstdint>

#include "penstock/rank/job.h"
#include "penstock/rank/stage.h"

namespace penstock::rank {

/// Used on its rank's thread.
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
