#include "penstock/autotune/sample.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <sstream>

#include <torch/optim/sgd.h>

#include "penstock/base/error.h"
#include "penstock/layers/fast_layers.h"
#include "penstock/model/random_place.h"
#include "penstock/pipeline/partition_network.h"

namespace penstock {
namespace {

void require_sample(const Tensors& sample, int inputs) {
  require<ConfigError>(static_cast<int>(sample.size()) == inputs,
                       "layers are measured on AutotuneOptions::sample, which holds ", sample.size(),
                       " tensors, but the network takes ", inputs, ": pass it the inputs of some samples");
  for (const torch::Tensor& input : sample)
    require<ConfigError>(input.defined() && input.numel() >= 1, "AutotuneOptions::sample has no rows: pass some");
}

}  // namespace

PipelineOptions with_example_inputs(PipelineOptions options, const BatchTensors& sample) {
  if (options.example_inputs.empty()) {
    options.example_inputs = sample.list();
    keep_only_shapes(options.example_inputs);
  }
  return options;
}

OptimizerFactory optimizer_or_sgd(const OptimizerFactory& given) {
  return given ? given : optimizer_factory([](auto parameters) { return torch::optim::SGD(parameters, 1e-6); });
}

std::vector<double> of_rank_0(World& world, const std::vector<double>& own) {
  std::ostringstream text;
  text.precision(std::numeric_limits<double>::max_digits10);
  for (const double number : own) text << number << " ";
  std::istringstream agreed(decided_on_rank_0(world, ranks_of(world).next_pipeline(), Topic::steps,
                                              [&](const RankContext&) { return text.str(); }));
  std::vector<double> numbers;
  for (double number = 0; agreed >> number;) numbers.push_back(number);
  return numbers;
}

bool SampleCall::reads_sample() const {
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [](const ValueRef& input) { return input.is_graph_input(); });
}

void walk_sample(const Graph& graph, const Tensors& sample, Kernels kernels,
                 const std::function<Tensors(const SampleCall&)>& visit) {
  RandomPlace place;
  const RandomPlaceGuard guard(place);
  std::map<ValueRef, torch::Tensor> values;
  for (std::size_t i = 0; i < sample.size(); ++i) values[{-1, static_cast<int>(i)}] = sample[i];
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    place.begin_call(node.name);
    std::optional<BuiltLayer> layer;
    if (node.is_layer()) layer = initial_layer(*node.layer, {.seed = 0, .layer = node.layer_path});
    for (const auto& [name, owner] : node.ties) {
      torch::Tensor mine = find_parameter(*layer->module, name, node.layer_path);
      const BuiltLayer theirs = initial_owner(*owner.layer, {.seed = 0, .layer = owner.layer_path}, owner.name);
      tie_values(mine, find_parameter(*theirs.module, owner.name, owner.layer_path));
    }
    if (layer && kernels == Kernels::tuned) layers::make_fast(*layer);
    Tensors inputs;
    for (const ValueRef& input : node.inputs) inputs.push_back(values.at(input));
    const Tensors outputs = visit({node, layer ? &*layer : nullptr, inputs});
    for (std::size_t i = 0; i < outputs.size(); ++i)
      values[{static_cast<int>(n), static_cast<int>(i)}] = outputs[i].defined() ? outputs[i].detach() : outputs[i];
  }
}

std::string SampleAgreement::on(Topic topic, const std::function<std::string(const RankContext&)>& decide) const {
  return decided_on_rank_0(world, pipeline, topic, [&](const RankContext& context) {
    // Checked here, on the only rank that reads the sample: an error on this thread ends all ranks.
    require_sample(sample, graph.inputs);
    return decide(context);
  });
}

}  // namespace penstock
