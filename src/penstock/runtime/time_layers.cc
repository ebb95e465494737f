#include "penstock/runtime/time_layers.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "penstock/trace/account.h"

namespace penstock {

TimedSteps put_together(const StagedGraph& staged, const std::vector<NodeTimes>& nodes, const Trace& trace) {
  const StageCosts measured = measured_costs(trace);
  const std::size_t stages = measured.forward.size();
  TimedSteps steps{.costs = {}, .step = account(trace).measured_ms};
  LayerCosts& costs = steps.costs;
  costs.time_unit = "ms";
  costs.ranks = trace.schedule.rank_count();
  costs.samples = trace.schedule.micro_batches;
  costs.link.latency = measured.message;
  std::vector<double> forward(stages, 0), input_grad(stages, 0);
  std::vector<std::vector<std::size_t>> layers_of(stages);
  double bytes = 0;
  std::map<std::size_t, NodeTimes> times_of;
  for (const NodeTimes& times : nodes) times_of[static_cast<std::size_t>(times.node)] = times;
  for (std::size_t n = 0; n < staged.graph.nodes.size(); ++n) {
    LayerCost layer;
    layer.name = staged.graph.nodes[n].name;
    if (const auto found = times_of.find(n); found != times_of.end()) {
      const NodeTimes& times = found->second;
      layer.forward = times.forward;
      layer.input_grad = times.backward;
      layer.weight_grad = times.weight_grad;
      layer.activation_bytes = layer.boundary_bytes = static_cast<double>(times.output_bytes);
      layer.parameter_bytes = 2 * static_cast<double>(times.parameter_bytes);  // the parameters and their gradients
      const std::size_t stage = staged.stage_of_node[n].index();
      forward[stage] += layer.forward;
      input_grad[stage] += layer.input_grad;
      bytes += layer.parameter_bytes;
      layers_of[stage].push_back(n);
    }
    costs.layers.push_back(std::move(layer));
  }
  double update = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    // The overhead of F lies between its layers and grows with their number; that of B lies around them.
    const double between = std::max(0.0, measured.forward[stage] - forward[stage]);
    for (const std::size_t n : layers_of[stage])
      costs.layers[n].forward += between / static_cast<double>(layers_of[stage].size());
    costs.instruction_overhead += (measured.input_grad[stage] - input_grad[stage]) / static_cast<double>(stages);
    update += measured.update[stage];
  }
  costs.instruction_overhead = std::max(0.0, costs.instruction_overhead);
  if (bytes > 0)
    for (LayerCost& layer : costs.layers) layer.update = update / bytes * layer.parameter_bytes;
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
