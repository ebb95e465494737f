// One rank's numbers in the world, and its transport endpoint.
#pragma once

#include <memory>

#include "penstock/base/ids.h"

namespace penstock {

class Transport;

/// A plain value that shares ownership of the endpoint, because a rank that hangs may outlive its world
/// (Worker::abandon).
struct RankContext {
  WorldRank rank;
  int stages = 1;         // pipeline ranks p
  int replicas = 1;       // d
  bool collects = false;  // the first local rank, which collects results for its process
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
