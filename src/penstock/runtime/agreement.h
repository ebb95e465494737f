// What is measured on world rank 0 and holds for all: a time differs from rank to rank, a decision may not.
#pragma once

#include <functional>
#include <string>

#include "penstock/model/graph.h"
#include "penstock/runtime/world.h"

namespace penstock {

/// Shows on the other ranks that this one is alive and at `what`: measuring takes a while.
void report_progress_of(const RankContext& context, const std::string& what);

enum class Topic : std::int32_t { kernels, partition, layer_times };

/// Calls `decide` on world rank 0 and returns what it says, on every rank. Collective.
std::string decided_on_rank_0(const World& world, std::uint32_t pipeline, Topic topic,
                              const std::function<std::string(const RankContext&)>& decide);

/// A place to agree on something that is measured on a sample.
struct Agreement {
  const World& world;
  std::uint32_t pipeline = 0;
  const Graph& graph;
  const Tensors& sample;  // one micro-batch of the network's inputs; looked at on world rank 0 alone

  /// decided_on_rank_0(). Throws ConfigError where the sample is not what the network takes.
  std::string on(Topic topic, const std::function<std::string(const RankContext&)>& decide) const;
};

}  // namespace penstock
