#include "penstock/runtime/time_cut.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>

#include <torch/autograd.h>
#include <torch/nn/module.h>

#include "penstock/base/error.h"
#include "penstock/model/random_place.h"
#include "penstock/plan/partition.h"
#include "penstock/transport/text_message.h"

namespace penstock {
namespace {

constexpr int timed_runs = 3;

/// Of its own, so that a layer that changes its input spoils no one else's, and with a gradient as in a pipeline.
Tensors copies_of(const Tensors& values, bool with_gradient) {
  Tensors copies;
  for (const torch::Tensor& value : values) {
    torch::Tensor copy = value.defined() ? value.detach().clone() : value;
    if (with_gradient && copy.defined() && copy.is_floating_point()) {
      copy.requires_grad_(true);
      copy = copy.view_as(copy);  // what a layer may change is no leaf
    }
    copies.push_back(copy);
  }
  return copies;
}

/// One node, built.
struct Runnable {
  TensorFunction forward;
  std::vector<torch::Tensor> parameters;
};

Runnable runnable(const Node& node) {
  if (!node.is_layer()) return {node.function, {}};
  const BuiltLayer built = build_layer(node.layer->factory, {.seed = 0, .layer = node.layer_path});
  return {built.forward, built.module->parameters()};
}

/// Runs forward and backward; `outputs` gets what forward gave.
void run_once(const Runnable& node, const Tensors& inputs, Tensors& outputs) {
  outputs = node.forward(inputs);
  Tensors roots, gradients, leaves;
  for (const torch::Tensor& output : outputs)
    if (output.defined() && output.requires_grad()) {
      roots.push_back(output);
      gradients.push_back(torch::ones_like(output));
    }
  for (const Tensors* some : {&inputs, &node.parameters})
    std::copy_if(some->begin(), some->end(), std::back_inserter(leaves),
                 [](const torch::Tensor& t) { return t.defined() && t.requires_grad(); });
  if (!roots.empty() && !leaves.empty())
    torch::autograd::grad(roots, leaves, gradients, std::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
}

void told(const Member& member, const std::string& layer) {
  Position position;
  std::strncpy(position.word, ("time " + layer).c_str(), sizeof(position.word) - 1);
  member.endpoint->report_progress(position);
}

std::vector<double> measure(const Graph& graph, const Tensors& sample, const std::function<void(const Node&)>& at) {
  using Clock = std::chrono::steady_clock;
  const torch::AutoGradMode with_graph(true);
  RandomPlace place;
  const RandomPlaceGuard guard(place);
  std::map<ValueRef, torch::Tensor> values;
  for (std::size_t i = 0; i < sample.size(); ++i) values[{-1, static_cast<int>(i)}] = sample[i];
  std::vector<double> seconds;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    at(node);
    place.call = node.name;
    const Runnable built = runnable(node);
    Tensors inputs, outputs;
    for (const ValueRef& input : node.inputs) inputs.push_back(values.at(input));
    const bool reads_sample = std::all_of(node.inputs.begin(), node.inputs.end(),
                                          [](const ValueRef& input) { return input.is_graph_input(); });
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run <= timed_runs; ++run) {
      const Tensors own = copies_of(inputs, !reads_sample);
      const auto begin = Clock::now();
      run_once(built, own, outputs);
      if (run > 0) best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    seconds.push_back(best);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const torch::Tensor& output = outputs[i];
      values[{static_cast<int>(n), static_cast<int>(i)}] = output.defined() ? output.detach() : output;
    }
  }
  return seconds;
}

}  // namespace

std::vector<double> measured_times(const Graph& graph, const Tensors& sample) {
  return measure(graph, sample, [](const Node&) {});
}

std::string fastest_cut(const Graph& graph, const std::vector<double>& seconds,
                        const std::vector<Rank>& rank_of_stage) {
  std::vector<double> sums{0};  // of the first 0, 1, 2, ... layers
  for (double time : seconds) sums.push_back(sums.back() + time);
  const auto time_of = [&](const Stretch& stretch) {
    return sums[static_cast<std::size_t>(stretch.end)] - sums[static_cast<std::size_t>(stretch.begin)];
  };
  PartitionProblem problem;
  problem.layers = static_cast<int>(seconds.size());
  problem.rank_of_stage = rank_of_stage;
  problem.price = problem.least = [&](Rank, std::span<const Stretch> stages) {
    return std::accumulate(stages.begin(), stages.end(), 0.0,
                           [&](double sum, const Stretch& stretch) { return sum + time_of(stretch); });
  };
  problem.share = time_of;
  const std::optional<Partition> best = cheapest_partition(problem);
  require<PlanError>(best.has_value(), "cut 'time': ", seconds.size(), " layers are too few for ",
                     rank_of_stage.size(), " stages: each needs one");
  std::string cut;
  for (std::size_t stage = 1; stage < best->stages.size(); ++stage)
    cut += (stage > 1 ? "," : "") + graph.nodes[static_cast<std::size_t>(best->stages[stage].begin)].name;
  return cut;
}

std::string agree_on_fastest_cut(const World& world, std::uint32_t pipeline, const Graph& graph, const Tensors& sample,
                                 const std::vector<Rank>& rank_of_stage) {
  // Not one of the preflight's, which uses small numbers.
  const Tag tag{pipeline, Traffic::control, 0, -1, 0, 0};
  std::string agreed;
  world.run_on_local_ranks([&](const Member& member) {
    std::string cut;
    if (member.rank == WorldRank(0)) {
      // Here, where a complaint ends all ranks: only this one looks at the sample.
      require<ConfigError>(static_cast<int>(sample.size()) == graph.inputs,
                           "cut 'time' measures the layers on PipelineOptions::sample, which holds ", sample.size(),
                           " tensors, but the network takes ", graph.inputs, ": give it the inputs of some samples");
      for (const torch::Tensor& input : sample)
        require<ConfigError>(input.defined() && input.dim() >= 1 && input.size(0) >= 1,
                             "PipelineOptions::sample has no rows: give it some");
      cut = fastest_cut(graph, measure(graph, sample, [&](const Node& node) { told(member, node.name); }),
                        rank_of_stage);
      for (int r = 1; r < member.world_size(); ++r)
        member.endpoint->send(WorldRank(r), tag, text_message(cut));
    } else {
      cut = text_of(member.endpoint->receive(WorldRank(0), tag, "the cut by measured time"));
    }
    if (member.collects) agreed = cut;
  });
  return agreed;
}

}  // namespace penstock
