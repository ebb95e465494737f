// Jobs whose schedule "auto" chooses, and whether they train as fixed options do. For threads and for MPI processes.
#pragma once

#include <string>
#include <vector>

#include <torch/torch.h>

#include "penstock/autotune/autotune.h"
#include "penstock/autotune/choose.h"
#include "penstock/base/error.h"
#include "penstock/kernels/kernels.h"
#include "penstock/model/cell.h"
#include "penstock/model/functions.h"
#include "penstock/pipeline/pipeline.h"
#include "tests/support/trained.h"

namespace penstock::test {

/// Two branches of linear layers. "c" follows "b" in the order of calls, but needs only the input: annotations may put
/// it on an earlier stage.
struct BranchedNetwork : Cell {
  Layer a = add("a", [] { return torch::nn::Linear(6, 8); });
  Layer b = add("b", [] { return torch::nn::Linear(8, 8); });
  Layer c = add("c", [] { return torch::nn::Linear(6, 8); });
  Layer d = add("d", [] { return torch::nn::Linear(8, 8); });
  Layer e = add("e", [] { return torch::nn::Linear(8, 4); });

  /// `stages` of a to e; empty: no annotations.
  explicit BranchedNetwork(const std::vector<int>& stages = {}) {
    const std::vector<Layer*> layers{&a, &b, &c, &d, &e};
    for (std::size_t i = 0; i < stages.size(); ++i) layers[i]->pipeline_stage = stages[i];
  }

  Value forward(Value x) override {
    const Value left = b(a(x));
    return e(d(left + c(x)));
  }
};

/// Options whose schedule and weight gradients are left to measuring.
inline PipelineOptions open_options(int micro_batches = 4) {
  return {.micro_batches = micro_batches, .schedule = "auto", .weight_gradients = WeightGradients::automatic};
}

struct AutoJob {
  std::string name;
  std::vector<int> stages = {};  // annotations
  int replicas = 1;
  PipelineOptions options = {};
};

/// Every job has two pipeline ranks.
inline std::vector<AutoJob> auto_jobs() {
  std::vector<AutoJob> jobs;
  const auto add = [&](const char* name, std::vector<int> stages, int replicas, auto&& change) {
    AutoJob job{name, std::move(stages), replicas, open_options()};
    change(job.options);
    jobs.push_back(std::move(job));
  };
  add("free", {}, 1, [](auto&) {});
  add("annotated", {0, 0, 0, 1, 1}, 1, [](auto&) {});
  add("annotated against the order of calls", {0, 1, 0, 1, 1}, 1, [](auto&) {});
  add("annotated, with an empty stage", {1, 1, 1, 1, 1}, 1, [](auto&) {});
  add("annotated in chunks", {0, 1, 1, 2, 3}, 1, [](auto&) {});
  add("replicas", {}, 2, [](auto&) {});
  add("replicas, tuned, clipped", {}, 2, [](auto& options) {
    if (has_cpu_kernels()) options.kernels = Kernels::tuned;
    options.clip_norm = 1;
  });
  add("chunks", {}, 1, [](auto& options) { options.chunks = 2; });
  add("one chunk", {}, 1, [](auto& options) { options.chunks = 1; });
  add("memory limit", {}, 1, [](auto& options) { options.memory_limit = TimesOf1F1B{1}; });
  add("small memory limit", {}, 1, [](auto& options) {
    options.memory_limit = TimesOf1F1B{0.75};
    options.weight_gradients = WeightGradients::stream;
  });
  add("any m, annotated, replicas, memory limit", {0, 0, 0, 1, 1}, 2, [](auto& options) {
    options.micro_batches = 0;
    options.memory_limit = TimesOf1F1B{1};
  });
  add("annotated in chunks, memory limit", {0, 1, 1, 2, 3}, 1,
      [](auto& options) { options.memory_limit = TimesOf1F1B{1}; });
  return jobs;
}

/// Little measuring, on a batch.
inline AutotuneOptions quick(const torch::Tensor& inputs, const torch::Tensor& targets) {
  AutotuneOptions how{.sample = inputs, .sample_targets = targets};
  how.profile.steps = 1;
  how.profile.passes_ms = 0;
  how.comparison = {.finalists = 2, .budget_ms = 0};
  return how;
}

inline Trained train(World& world, Cell& network, const PipelineOptions& options, const torch::Tensor& x,
                     const torch::Tensor& y) {
  Trained trained;
  Pipeline pipeline(world, network, squared_error, options);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  for (int step = 0; step < 3; ++step) trained.losses.push_back(pipeline.train_step(x, y).loss());
  trained.state = pipeline.state_dict();
  return trained;
}

/// Options that name what `choice` chose for `options`. zb-auto orders its instructions by costs, which changes no bit
/// unless its W's cover groups of micro-batches.
inline PipelineOptions named_options(PipelineOptions options, const AutoChoice& choice) {
  const Candidate& chosen = choice.planned.value().candidates.front();
  options.micro_batches = chosen.micro_batches;
  options.schedule = chosen.schedule;
  options.chunks = chosen.chunks;
  options.weight_gradients =
      chosen.weight_gradients == WeightGradients::stream ? WeightGradients::stream : WeightGradients::fused;
  options.partition = choice.options.partition;
  options.kernels = choice.options.kernels;
  options.kernel_selection = choice.options.kernel_selection;
  if (chosen.schedule == "zb-auto" && chosen.weight_gradients == WeightGradients::grouped) return choice.options;
  return options;
}

/// How the job's training with "auto" differs from that with the same fixed options, bit by bit; empty where it does
/// not. Collective.
inline std::string difference_of(World& world, const AutoJob& job) {
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({19, 6}), y = torch::randn({19, 4});
  BranchedNetwork network(job.stages);
  const PipelineOptions& options = job.options;
  const AutoChoice choice = autotune_with_reasons(world, network, squared_error, options, quick(x, y));
  const Trained chosen = train(world, network, choice.options, x, y);
  const Trained fixed = train(world, network, named_options(options, choice), x, y);
  const std::string differs = difference(fixed, chosen);
  return differs.empty() ? "" : say(job.name, ": ", choice.options.custom->name, " has other ", differs);
}

}  // namespace penstock::test
