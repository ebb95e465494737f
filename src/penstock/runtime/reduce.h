// Gradients summed over the replicas of a stage, by messages, in replica order whatever arrives first.
#pragma once

#include <string>
#include <vector>

#include "penstock/model/value.h"
#include "penstock/transport/transport.h"

namespace penstock {

/// The ranks that hold the same stage, by replica; and which of them this is.
struct ReplicaGroup {
  Transport& endpoint;
  Tag tag;  // its to_stage is used here
  Replica own;
  std::vector<WorldRank> ranks;
};

/// The sum over replicas of every one of `own`; `like` says what shape and type they have, for some may be undefined.
/// Undefined where no replica has one. Each replica sums an equal part of the numbers, replica 0's first, and sends it
/// to all: every replica gets the same bits.
Tensors sum_over_replicas(const ReplicaGroup& group, const Tensors& own, const Tensors& like);

/// Gives `values`, the same tensors on every replica, the values that replica 0 has. Replica 0 sends and does not wait.
/// `waiting_for` is what an error says the others wait for.
void copy_from_first(const ReplicaGroup& group, const Tensors& values, const std::string& waiting_for);

}  // namespace penstock
