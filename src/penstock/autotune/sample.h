// The sample batch that layers are measured on: its share of a replica, a walk over the network's nodes with it, and
// decisions that world rank 0 takes from it for all ranks. Used inside this module only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "penstock/autotune/autotune_options.h"
#include "penstock/base/split.h"
#include "penstock/model/graph.h"
#include "penstock/rank/batch.h"
#include "penstock/rank/optimizer.h"
#include "penstock/rank/options.h"
#include "penstock/world/rank_threads.h"
#include "penstock/world/world.h"

namespace penstock {

/// `options` with the shapes and dtypes of `sample` as PipelineOptions::example_inputs, unless they have some.
PipelineOptions with_example_inputs(PipelineOptions options, const BatchTensors& sample);

/// The axes of AutotuneOptions::sample and sample_targets.
inline rank::BatchAxesOf sample_axes(const PipelineOptions& options) {
  return {{"sample", options.batch_dims.inputs}, {"sample_targets", options.batch_dims.targets}, {}};
}

/// The samples of the sample batch that one replica gets, of the largest share. Throws ConfigError for an empty batch.
inline std::int64_t samples_per_replica(const PipelineOptions& options, const AutotuneOptions& how, int replicas) {
  const std::int64_t samples = sample_axes(options).samples(how.sample, how.sample_targets);
  return split(samples, {.index = 0, .of = replicas}).size();
}

/// The numbers of world rank 0. Collective.
std::vector<double> of_rank_0(World& world, const std::vector<double>& own);

/// `given`, or SGD that hardly changes parameters.
OptimizerFactory optimizer_or_sgd(const OptimizerFactory& given);

/// A node with its inputs.
struct SampleCall {
  const Node& node;
  const BuiltLayer* layer;  // null for a function
  const Tensors& inputs;

  /// Whether its inputs depend on no parameters.
  bool reads_sample() const;
};

/// Calls `visit` for every node of `graph` in order; it returns the node's outputs. Builds each layer before its call,
/// as a rank with `kernels` builds it.
void walk_sample(const Graph& graph, const Tensors& sample, Kernels kernels,
                 const std::function<Tensors(const SampleCall&)>& visit);

/// Takes decisions from measurements on a sample: world rank 0 decides for all ranks.
struct SampleAgreement {
  const World& world;
  std::uint32_t pipeline = 0;
  const Graph& graph;
  const Tensors& sample;  // one micro-batch of the network's inputs; read only on world rank 0

  /// decided_on_rank_0(). Throws ConfigError where the sample does not match the network's inputs.
  std::string on(Topic topic, const std::function<std::string(const RankContext&)>& decide) const;
};

}  // namespace penstock
