// A pipeline together with what it refers to.
#pragma once

#include <utility>
#include <vector>

#include "penstock/penstock.h"

namespace penstock::test {

template <class Network>
struct NetworkOnRanks {
  explicit NetworkOnRanks(const WorldOptions& ranks) : world(ranks) {}
  World world;
  Network network;
};

/// The pipeline of a new Network on the ranks of a new world.
template <class Network>
class PipelineOf : NetworkOnRanks<Network>, public Pipeline {
  using Parts = NetworkOnRanks<Network>;

 public:
  explicit PipelineOf(const WorldOptions& ranks, const PipelineOptions& options = {}, const Loss& loss = cross_entropy)
      : Parts(ranks), Pipeline(Parts::world, Parts::network, loss, options) {}
  template <class Make>
  PipelineOf(const WorldOptions& ranks, const PipelineOptions& options, Make make, const Loss& loss = cross_entropy)
      : PipelineOf(ranks, options, loss) {
    optimize_with(std::move(make));
  }
};

inline auto torch_sgd(double rate) {
  return [rate](const std::vector<torch::Tensor>& parameters) { return torch::optim::SGD(parameters, rate); };
}

}  // namespace penstock::test
