// What is measured on a sample on world rank 0 and holds for all.
#pragma once

#include "penstock/model/graph.h"
#include "penstock/world/agreement.h"

namespace penstock {

/// A place to agree on something that is measured on a sample.
struct SampleAgreement {
  const World& world;
  std::uint32_t pipeline = 0;
  const Graph& graph;
  const Tensors& sample;  // one micro-batch of the network's inputs; looked at on world rank 0 alone

  /// decided_on_rank_0(). Throws ConfigError where the sample is not what the network takes.
  std::string on(Topic topic, const std::function<std::string(const RankContext&)>& decide) const;
};

}  // namespace penstock
