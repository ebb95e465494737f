#include "penstock/runtime/time_layers.h"

#include <algorithm>

#include "penstock/trace/account.h"

namespace penstock {

TimedSteps put_together(const StagedGraph& staged, const std::map<std::string, torch::Tensor>& timed_nodes,
                        const Trace& trace) {
  TimedSteps steps;
  const Costs costs = measured_costs(trace);
  const auto stages = costs.forward.size();
  std::vector<double> forward(stages, 0), backward(stages, 0);
  std::vector<std::vector<std::size_t>> layers_of(stages);
  double update = 0;
  std::int64_t bytes = 0;
  for (std::size_t n = 0; n < staged.graph.nodes.size(); ++n) {
    LayerTimes layer;
    layer.name = staged.graph.nodes[n].name;
    if (const auto found = timed_nodes.find(std::to_string(n)); found != timed_nodes.end()) {
      const auto times = found->second.accessor<double, 1>();
      layer.forward = times[0];
      layer.backward = times[1];
      layer.weight_grad = times[2];
      layer.output_bytes = static_cast<std::int64_t>(times[3]);
      layer.parameter_bytes = static_cast<std::int64_t>(times[4]);
      forward[staged.stage_of_node[n].index()] += layer.forward;
      backward[staged.stage_of_node[n].index()] += layer.backward;
      bytes += layer.parameter_bytes;
      layers_of[staged.stage_of_node[n].index()].push_back(n);
    }
    steps.layers.push_back(std::move(layer));
  }
  for (std::size_t stage = 0; stage < stages; ++stage) {
    // The overhead of F lies between its layers and grows with their number; that of B lies around them.
    const double between = std::max(0.0, costs.forward[stage] - forward[stage]);
    for (const std::size_t n : layers_of[stage])
      steps.layers[n].forward += between / static_cast<double>(layers_of[stage].size());
    steps.instruction_overhead += (costs.input_grad[stage] - backward[stage]) / static_cast<double>(stages);
    update += costs.update[stage];
  }
  steps.instruction_overhead = std::max(0.0, steps.instruction_overhead);
  steps.message = costs.message;
  steps.update_per_byte = bytes > 0 ? update / static_cast<double>(bytes) : 0;
  steps.step = account(trace).measured_ms;
  return steps;
}

StageLayers layers_by_stage(const StagedGraph& staged) {
  StageLayers layers(staged.parts.size());
  for (std::size_t n = 0; n < staged.graph.nodes.size(); ++n)
    layers[staged.stage_of_node[n].index()].push_back(staged.graph.nodes[n].name);
  return layers;
}

void note_layers(const StagedGraph& staged, const std::string& layer_costs, Trace& trace) {
  const StageLayers layers = layers_by_stage(staged);
  // A name with a separator would break the list, which is then left out of the trace.
  const auto cannot_be_listed = [](const std::string& name) { return name.find_first_of(",;") != std::string::npos; };
  if (std::any_of(layers.begin(), layers.end(), [&](const auto& stage) {
        return stage.empty() || std::any_of(stage.begin(), stage.end(), cannot_be_listed);
      }))
    return;
  trace.settings[layers_setting] = write_stage_layers(layers);
  if (!layer_costs.empty()) trace.settings[layer_costs_setting] = layer_costs;
}

}  // namespace penstock
