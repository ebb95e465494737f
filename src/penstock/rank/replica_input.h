// How the replicas of a pipeline share the inputs of an inference.
#pragma once

namespace penstock {

/// How the replicas of a pipeline share the rows of an inference.
enum class ReplicaInput {
  share,  // each replica computes its share, and the outputs are concatenated
  each    // each replica computes all rows; a process gets the outputs of its own replica, under threads of replica 0
};

}  // namespace penstock
