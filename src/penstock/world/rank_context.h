// One rank's place in the world, and its way to the others.
#pragma once

#include <memory>

#include "penstock/base/ids.h"
#include "penstock/transport/transport.h"

namespace penstock {

/// A plain value that keeps the endpoint alive: a rank that hangs may outlive its world (Worker::abandon).
struct RankContext {
  WorldRank rank;
  int stages = 1;         // p
  int replicas = 1;       // d
  bool collects = false;  // speaks for its process: the first of its local ranks
  bool is_alone = false;  // every rank of the world is in this process
  std::shared_ptr<Transport> endpoint;

  int world_size() const { return stages * replicas; }
  Rank pipeline_rank() const { return Rank(rank.value() / replicas); }
  Replica replica() const { return Replica(rank.value() % replicas); }
  WorldRank rank_of(Rank pipeline_rank, Replica replica) const {
    return WorldRank(pipeline_rank.value() * replicas + replica.value());
  }
};

}  // namespace penstock
