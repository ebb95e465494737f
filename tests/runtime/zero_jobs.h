// Trainings whose replicas share the optimiser's state, and the same without.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/penstock.h"
#include "penstock/pipeline/parameter_groups.h"
#include "penstock/pipeline/profiler.h"
#include "tests/support/trained.h"

namespace penstock::test {

/// Parameters of which each replica has some rows, others that belong to one replica, one on two stages, and a frozen
/// one.
struct WideNetwork : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(48, 96); });
  Layer second = add("second", [] { return torch::nn::Linear(96, 64); });
  Layer norm = add("norm", [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})); });
  Layer third = add("third", [] { return torch::nn::Linear(64, 64); });
  Layer frozen = add("frozen", [] {
    torch::nn::Linear fixed(64, 64);
    fixed->weight.set_requires_grad(false);
    return fixed;
  });
  Layer tied = add("tied", [] { return torch::nn::Linear(64, 64); });
  Layer last = add("last", [] { return torch::nn::Linear(64, 7); });

  WideNetwork() { tied.tie("weight", third, "weight"); }

  Value forward(Value x) override {
    x = norm(relu(second(relu(first(x)))));
    return last(relu(tied(frozen(relu(third(x))))));
  }
};

struct ZeroCase {
  int stages = 2;
  int replicas = 2;
  std::string schedule = "1f1b";
  std::optional<double> clip_norm = std::nullopt;
  Precision precision = Precision::fp32;
  bool has_hook = false;
  int update_every = 1;

  std::string name() const {
    return say(schedule, " p ", stages, " d ", replicas, clip_norm ? " clipped" : "", " ", to_string(precision),
               has_hook ? " hook" : "", " every ", update_every);
  }
};

struct ZeroOutcome : Trained {
  std::vector<std::int64_t> state_bytes;  // of the optimiser, by world rank on the main process
};

inline std::pair<torch::Tensor, torch::Tensor> zero_batch(int step) {
  torch::manual_seed(static_cast<std::uint64_t>(step));
  const std::int64_t samples = step == 2 ? 3 : 24;  // fewer than most replicas have micro-batches for
  return {torch::randn({samples, 48}), torch::arange(samples) % 7};
}

/// AdamW with momentum for the weights, SGD without state for the rest.
inline ParameterGroups zero_optimizers() {
  return ParameterGroups(adamw({.learning_rate = 1e-2, .weight_decay = 0.1}))
      .add("norm.*", sgd({.learning_rate = 0.1}))
      .add(no_decay, sgd({.learning_rate = 0.1, .momentum = 0.9}));
}

inline ZeroOutcome run_zero_job(World& world, const ZeroCase& one, int zero) {
  WideNetwork network;
  Pipeline pipeline(world, network, cross_entropy,
                    {.micro_batches = 2,
                     .update_every = one.update_every,
                     .schedule = one.schedule,
                     .clip_norm = one.clip_norm,
                     .zero = zero,
                     .count_bytes = true,
                     .precision = one.precision,
                     .loss_scaling = {.initial = 16777216, .growth_steps = 2},
                     .partition = "uniform",
                     .seed = 5});
  pipeline.optimize_with(zero_optimizers());
  if (one.has_hook)
    pipeline.add_gradient_hook([](const std::string&, const torch::Tensor& g) { return g / (g.norm() + 1); });
  ZeroOutcome outcome;
  for (int step = 0; step < 5; ++step) {
    const auto [inputs, targets] = zero_batch(step);
    outcome.losses.push_back(pipeline.train_step(inputs, targets).loss());
  }
  if (pipeline.has_gradients()) pipeline.step();
  outcome.state = pipeline.state_dict();
  for (const RankPeak& peak : Profiler(pipeline).peaks()) outcome.state_bytes.push_back(peak.optimizer_bytes);
  return outcome;
}

}  // namespace penstock::test
