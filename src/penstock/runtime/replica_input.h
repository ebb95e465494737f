// What the replicas of a pipeline do with the inputs of an inference.
#pragma once

namespace penstock {

/// What the replicas of a pipeline do with the rows of an inference.
enum class ReplicaInput {
  share,  // each computes its share of them, and the whole is put together
  each    // each computes all of them; a process gets what its own replica made, under threads what replica 0 made
};

}  // namespace penstock
