// The gradients of a rank's stages on their way to the update: summed over all uses of a parameter and over the
// replicas, and measured. Values of parameters are copied the same ways.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "penstock/model/value.h"
#include "penstock/rank/job.h"
#include "penstock/rank/stage.h"

namespace penstock {

/// The numbers of a tensor: of a complex one its real and imaginary parts, in a last dimension of size 2.
inline torch::Tensor as_real(const torch::Tensor& tensor) {
  return tensor.is_complex() ? torch::view_as_real(tensor.resolve_conj()) : tensor;
}

/// The ranks that hold the same stage.
struct ReplicaGroup {
  DataPlane& endpoint;
  Tag tag;  // of the messages; Tag::to_stage is set by the functions below
  Replica own;
  std::vector<WorldRank> ranks;  // by replica
};

/// The replicas of a stage of this rank. `round`: the step, or a counter of other operations.
ReplicaGroup replicas_of(const StagePlacement& placement, StageId stage, Traffic traffic, std::uint64_t round);

/// Returns the sums over the replicas of each tensor of `own`; undefined where it is undefined on all replicas. `like`
/// has the tensors' shapes and types, because some of `own` may be undefined. Each replica sums an equal part of the
/// numbers, in replica order, and sends it to all, so that every replica gets the same bits. Called on every replica.
Tensors sum_over_replicas(const ReplicaGroup& group, const Tensors& own, const Tensors& like);

/// Overwrites `values`, the same tensors on every replica, with those of replica 0. Called on every replica; replica 0
/// sends and does not wait. `waiting_for` names the awaited message in errors.
void copy_from_first(const ReplicaGroup& group, const Tensors& values, const std::string& waiting_for);

/// Addresses the stages of one pipeline replica, for tied parameters: the owner stage sums the gradients of all uses and
/// sends the total to the other stages; values are synchronised in the same way. Sending never blocks, and each rank
/// sends all its messages before it waits, so that no order of the ranks' instructions can deadlock.
struct TieRoute {
  const StagePlacement& placement;
  std::uint64_t round = 0;  // the step; for values a counter of their synchronisations
};

/// Sends the gradient of every use of `stage` to the parameter's owner stage, where that is another stage.
void send_uses(const TieRoute& route, const Stage& stage);
/// By parameter of `stage`: the sum over all uses in graph order, for tied parameters that this stage owns; undefined
/// for the others, and where no use has a gradient. Waits for the uses of other stages.
Tensors sum_tied(const TieRoute& route, const Stage& stage);
/// Sends `totals`, by parameter, to the other stages that use the parameters.
void send_totals(const TieRoute& route, const Stage& stage, const Tensors& totals);
/// Receives the totals of parameters that other stages own into `totals`. Waits.
void receive_totals(const TieRoute& route, const Stage& stage, Tensors& totals);

/// The same for values, including frozen ones: the owner sends them to the other stages that use them.
void send_values(const TieRoute& route, const Stage& stage);
void receive_values(const TieRoute& route, const Stage& stage);

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
