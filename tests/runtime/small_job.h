// A small training job, the same in every test that compares ways of running it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "penstock/penstock.h"
#include "penstock/pipeline/pipeline.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/trace/check_order.h"
#include "penstock/transport/transport.h"
#include "penstock/world/rank_threads.h"

namespace penstock::test {

/// The network of plain_loop.h as a Cell.
struct SmallNetwork : Cell {
  Layer a = add("a", [] { return torch::nn::Linear(12, 16); });
  Layer b = add("b", [] { return torch::nn::Linear(16, 16); });
  Layer norm = add("norm", [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})); });
  Layer gelu = add("gelu", [] { return torch::nn::GELU(); });
  Layer c = add("c", [] { return torch::nn::Linear(16, 16); });
  Layer d = add("d", [] { return torch::nn::Linear(16, 4); });

  Value forward(Value x) override {
    x = relu(a(flatten(x, 1)));
    x = gelu(norm(b(x)));
    return d(relu(c(x)));
  }
};

struct JobOptions {
  WorldOptions world;
  PipelineOptions pipeline;
  int steps = 5;
};

using Batches = std::vector<std::pair<torch::Tensor, torch::Tensor>>;

/// Batches of 13 samples; the last one has 3, fewer than most m.
inline Batches small_batches(int steps) {
  torch::manual_seed(7);
  Batches batches;
  for (int i = 0; i < steps; ++i) {
    const std::int64_t samples = i + 1 == steps ? 3 : 13;
    batches.emplace_back(torch::randn({samples, 3, 4}), torch::randint(0, 4, {samples}, torch::kInt64));
  }
  return batches;
}

struct JobOutcome {
  std::vector<double> losses;
  StateDict initial;     // on the main process
  StateDict parameters;  // on the main process
  std::vector<RankPeak> peaks;
  std::vector<MessageCosts> costs;  // by step: of this process's first rank, until after it
};

inline JobOutcome run_small_job(World& world, const JobOptions& options) {
  SmallNetwork network;
  Pipeline pipeline(world, network, cross_entropy, options.pipeline);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  JobOutcome outcome;
  outcome.initial = pipeline.state_dict();
  const RankContext rank = ranks_of(world).first();
  for (const auto& [inputs, targets] : small_batches(options.steps)) {
    outcome.losses.push_back(pipeline.train_step(inputs, targets).loss());
    outcome.costs.push_back(rank.endpoint->message_costs());
  }
  outcome.parameters = pipeline.state_dict();
  outcome.peaks = Profiler(pipeline).local_peaks();
  const Trace trace = Profiler(pipeline).trace();
  if (!world.is_main()) return outcome;
  const OrderCheck check = check_order(trace);
  require<InternalError>(check.steps > 0 && !check.violation, check.steps, " steps of the trace are complete; ",
                         check.violation.value_or("all in order"));
  return outcome;
}

inline JobOutcome run_small_job(const JobOptions& options) {
  World world(options.world);
  return run_small_job(world, options);
}

}  // namespace penstock::test
