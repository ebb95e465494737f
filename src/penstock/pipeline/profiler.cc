#include "penstock/pipeline/profiler.h"

#include <algorithm>
#include <iomanip>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/pipeline/pipeline_impl.h"
#include "penstock/trace/account.h"
#include "penstock/trace/recorder.h"
#include "penstock/world/collectives.h"
#include "penstock/world/gather.h"
#include "penstock/world/host_memory.h"
#include "penstock/world/rank_threads.h"

namespace penstock {
namespace {

/// For each node, the bytes of the values that are made by it or before, and read after it.
std::vector<double> crossing_bytes(const Graph& graph, const std::vector<rank::NodeTimes>& nodes) {
  std::vector<std::size_t> last_use(graph.nodes.size(), 0);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (const ValueRef& input : graph.nodes[n].inputs)
      if (!input.is_graph_input()) last_use[static_cast<std::size_t>(input.node)] = n;
  for (const ValueRef& output : graph.outputs)
    if (!output.is_graph_input()) last_use[static_cast<std::size_t>(output.node)] = graph.nodes.size();
  std::vector<double> crossing(graph.nodes.size(), 0);
  for (const rank::NodeTimes& times : nodes) {
    const auto node = static_cast<std::size_t>(times.node);
    for (std::size_t n = node; n < last_use[node]; ++n) crossing[n] += static_cast<double>(times.output_bytes);
  }
  return crossing;
}

/// Combines the layer times of the ranks of one replica (StageClocks) with the trace of the same steps.
TimedSteps put_together(const StagedGraph& staged, const std::vector<rank::NodeTimes>& nodes, const Trace& trace) {
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
  const std::vector<double> crossing = crossing_bytes(staged.graph, nodes);
  std::map<std::size_t, rank::NodeTimes> times_of;
  for (const rank::NodeTimes& times : nodes) times_of[static_cast<std::size_t>(times.node)] = times;
  for (std::size_t n = 0; n < staged.graph.nodes.size(); ++n) {
    LayerCost layer;
    layer.name = staged.graph.nodes[n].name;
    layer.block = staged.graph.nodes[n].in_block;
    layer.boundary_bytes = crossing[n];
    if (const auto found = times_of.find(n); found != times_of.end()) {
      const rank::NodeTimes& times = found->second;
      layer.forward = times.forward;
      layer.input_grad = times.backward;
      layer.weight_grad = times.weight_grad;
      layer.activation_bytes = static_cast<double>(times.output_bytes);
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

/// Writes the layers of each stage into the trace's settings, for advise(). Writes nothing if a stage has no layers.
void note_layers(const StagedGraph& staged, Trace& trace) {
  const StageLayers layers = layers_by_stage(staged);
  // A name with a separator would break the list, which is then left out of the trace.
  const auto cannot_be_listed = [](const std::string& name) { return name.find_first_of(",;") != std::string::npos; };
  if (std::any_of(layers.begin(), layers.end(), [&](const auto& stage) {
        return stage.empty() || std::any_of(stage.begin(), stage.end(), cannot_be_listed);
      }))
    return;
  trace.settings[layers_setting] = write_stage_layers(layers);
}

RankPeak peak_of(WorldRank rank, rank::RankRunner& runner) {
  RankPeak peak;
  peak.rank = rank;
  peak.measured = runner.executor().peak_activations();
  peak.predicted = runner.executor().predicted_activations();
  if (const rank::HeldBytes* bytes = runner.executor().held_bytes()) {
    peak.measured_bytes = bytes->peak();
    peak.predicted_bytes = bytes->predicted_peak();
    peak.optimizer_bytes = runner.updater().state_bytes();
  }
  peak.resident_bytes = resident_bytes();
  peak.peak_resident_bytes = peak_resident_bytes();
  return peak;
}

/// On every rank's thread with its own peak. Returns the peaks of all ranks on rank 0; an empty list on the others.
std::vector<RankPeak> gather_peaks(const RankContext& context, const Tag& tag, const RankPeak& own) {
  std::vector<RankPeak> peaks;
  for (const auto& of_rank : gather_records<RankPeak>(context, tag, {own}, "its peak activations"))
    peaks.insert(peaks.end(), of_rank.begin(), of_rank.end());
  return peaks;
}

}  // namespace

TimedSteps median_of(std::span<const TimedSteps> runs) {
  TimedSteps middle = runs.front();
  const auto take = [&](auto&& time_of) {
    std::vector<double> times;
    for (const TimedSteps& run : runs) times.push_back(time_of(run));
    return median(times);
  };
  for (std::size_t n = 0; n < middle.costs.layers.size(); ++n)
    for (double LayerCost::*time :
         {&LayerCost::forward, &LayerCost::input_grad, &LayerCost::weight_grad, &LayerCost::update})
      middle.costs.layers[n].*time = take([&](const TimedSteps& run) { return run.costs.layers[n].*time; });
  middle.costs.link.latency = take([](const TimedSteps& run) { return run.costs.link.latency; });
  middle.costs.instruction_overhead = take([](const TimedSteps& run) { return run.costs.instruction_overhead; });
  middle.step = take([](const TimedSteps& run) { return run.step; });
  return middle;
}

std::string to_text(const TimedSteps& steps) {
  std::ostringstream text;
  text << std::setprecision(std::numeric_limits<double>::max_digits10) << steps.step << "\n";
  return text.str() + write_layer_costs(steps.costs);
}

TimedSteps timed_steps_from(const std::string& text) {
  TimedSteps steps;
  const std::size_t line = text.find('\n');
  std::istringstream first(text.substr(0, line));
  first >> steps.step;
  require<InternalError>(!first.fail() && line != std::string::npos, "times of layers begin with '", first.str(), "'");
  steps.costs = read_layer_costs(std::string_view(text).substr(line));
  return steps;
}

StageLayers layers_by_stage(const StagedGraph& staged) {
  StageLayers layers(staged.parts.size());
  for (std::size_t n = 0; n < staged.graph.nodes.size(); ++n)
    layers[staged.stage_of_node[n].index()].push_back(staged.graph.nodes[n].name);
  return layers;
}

Profiler::Profiler(Pipeline& pipeline) : pipeline_(pipeline), impl_(*pipeline.impl_) {}

Trace Profiler::trace() {
  impl_.drain();
  Trace trace;
  trace.schedule = pipeline_.schedule();
  trace.replicas = impl_.world().replicas();
  for (const auto& [field, value] : impl_.fingerprint()) trace.settings[field] = value;
  trace.settings["transport"] = impl_.world().transport();
  note_layers(impl_.staged(), trace);
  const Tag tag = impl_.runners->next_gathering();
  impl_.runners->run([&](rank::RankRunner& runner) {
    auto steps = gather_steps(runner.context(), tag, runner.recorder().steps());
    if (runner.context().rank == WorldRank(0)) trace.ranks = std::move(steps);
  });
  fill_in_transits(trace);
  return trace;
}

void Profiler::clear() {
  impl_.on_each_rank([](rank::RankRunner& runner) { runner.recorder().clear(); });
}

TimedSteps Profiler::time_layers(const BatchTensors& inputs, const BatchTensors& targets, int steps) {
  require<ConfigError>(steps >= 1, "layers timed over ", steps, " steps: pass at least 1");
  const auto run = [&](int count) {
    while (count-- > 0) pipeline_.train_step(inputs, targets).wait();
  };
  clear();
  run(TimedSteps::untimed);
  impl_.on_each_rank([](rank::RankRunner& runner) { runner.clocks().set_running(true); });
  run(steps);
  const Trace steps_taken = trace();
  const Tag tag = impl_.runners->next_gathering();
  std::vector<rank::NodeTimes> nodes;  // of replica 0
  impl_.on_each_rank([&](rank::RankRunner& runner) {
    const bool is_first = runner.context().replica() == Replica(0);
    const auto own = is_first ? runner.clocks().times(static_cast<std::size_t>(steps)) : std::vector<rank::NodeTimes>();
    for (const auto& of_rank : gather_records(runner.context(), tag, own, "the times of its layers"))
      nodes.insert(nodes.end(), of_rank.begin(), of_rank.end());
    runner.clocks().set_running(false);
  });
  return timed_steps_from(
      decided_on_rank_0(impl_.world(), impl_.number, Topic::layer_times, [&](const RankContext& context) {
        TimedSteps combined = put_together(impl_.staged(), nodes, steps_taken);
        if (impl_.options.device->is_cpu())
          combined.costs.cache_bytes = static_cast<double>(cache_share(ranks_on_host(*context.endpoint)));
        return to_text(combined);
      }));
}

std::vector<RankPeak> Profiler::local_peaks() {
  impl_.drain();
  std::vector<RankPeak> peaks;
  for (const auto& runner : impl_.runners->all()) peaks.push_back(peak_of(runner->context().rank, *runner));
  return peaks;
}

std::vector<RankPeak> Profiler::peaks() {
  impl_.drain();
  std::vector<RankPeak> all;
  const Tag tag = impl_.runners->next_gathering();
  impl_.runners->run([&](rank::RankRunner& runner) {
    auto gathered = gather_peaks(runner.context(), tag, peak_of(runner.context().rank, runner));
    if (runner.context().rank == WorldRank(0)) all = std::move(gathered);
  });
  return all;
}

std::vector<StageBytes> Profiler::activation_bytes() {
  require<ConfigError>(impl_.options.count_bytes,
                       "bytes of activations are asked for, but not counted: set PipelineOptions::count_bytes");
  impl_.drain();
  const Tag tag = impl_.runners->next_gathering();
  std::vector<StageBytes> stages(
      static_cast<std::size_t>(pipeline_.schedule().stage_count()));  // on world rank 0's process
  impl_.runners->run([&](rank::RankRunner& runner) {
    const std::vector<StageBytes> own = runner.executor().held_bytes()->stage_bytes();
    for (const auto& of_rank : gather_records(runner.context(), tag, own, "the bytes of its activations"))
      for (const StageBytes& bytes : of_rank) {
        StageBytes& most = stages[bytes.stage.index()];
        most.after_forward = std::max(most.after_forward, bytes.after_forward);
        most.after_input_grad = std::max(most.after_input_grad, bytes.after_input_grad);
      }
  });
  std::istringstream text(decided_on_rank_0(impl_.world(), impl_.number, Topic::layer_times, [&](const RankContext&) {
    std::string numbers;
    for (const StageBytes& bytes : stages) numbers += say(bytes.after_forward, ' ', bytes.after_input_grad, '\n');
    return numbers;
  }));
  for (int stage = 0; StageBytes & bytes : stages) {
    bytes.stage = StageId(stage++);
    text >> bytes.after_forward >> bytes.after_input_grad;
  }
  return stages;
}

}  // namespace penstock
