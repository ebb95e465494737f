// All-reduce of gradients over the replicas of a stage: sums in replica order, independent of the order of arrival.
#pragma once

#include <string>
#include <vector>

#include "penstock/model/value.h"
#include "penstock/rank/stage_placement.h"

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

}  // namespace penstock
