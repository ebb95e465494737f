// Decisions from measurements on a sample: world rank 0 decides for all ranks.
#pragma once

#include "penstock/model/graph.h"
#include "penstock/world/agreement.h"

namespace penstock {

/// The context of such decisions.
struct SampleAgreement {
  const World& world;
  std::uint32_t pipeline = 0;
  const Graph& graph;
  const Tensors& sample;  // one micro-batch of the network's inputs; read on world rank 0 alone

  /// decided_on_rank_0(). Throws ConfigError where the sample does not match the network's inputs.
  std::string on(Topic topic, const std::function<std::string(const RankContext&)>& decide) const;
};

}  // namespace penstock
