#include "penstock/autotune/measured_bytes.h"

#include <algorithm>

#include <torch/optim/sgd.h>

#include "penstock/base/error.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/runtime/profiler.h"
#include "penstock/runtime/schedule_cache.h"
#include "penstock/schedule/schedule.h"

namespace penstock {
namespace {

/// Whether any B is an I and a W.
bool splits_backward(const Schedule& schedule) {
  return std::ranges::any_of(schedule.orders, [](const Order& order) {
    return std::ranges::any_of(order, [](const Instruction& each) { return each.op() == Op::input_grad; });
  });
}

/// Instructions for the stages and ranks of `training` that hold one micro-batch at a time: F on all stages, then B on
/// all stages in reverse, or I and W if `training` has them.
Schedule one_at_a_time(const Schedule& training) {
  Schedule schedule{"one micro-batch at a time", training.micro_batches, training.rank_of_stage,
                    std::vector<Order>(training.orders.size())};
  const bool splits = splits_backward(training);
  const auto add = [&](Op op, int stage, MicroBatch i) {
    const StageId id(stage);
    schedule.orders[schedule.rank_of(id).index()].push_back(Instruction::compute(op, id, i));
  };
  for (MicroBatch i(0); i.value() < training.micro_batches; i = i.next()) {
    for (int stage = 0; stage < training.stage_count(); ++stage) add(Op::forward, stage, i);
    for (int stage = training.stage_count() - 1; stage >= 0; --stage) {
      add(splits ? Op::input_grad : Op::backward, stage, i);
      if (splits) add(Op::weight_grad, stage, i);
    }
  }
  return schedule;
}

}  // namespace

bool needs_bytes(const PipelineOptions& options) {
  return options.memory_limit && is_in_bytes(*options.memory_limit) &&
         !(options.costs && !options.costs->activation_bytes.empty());
}

PipelineOptions without_bytes(PipelineOptions options) {
  if (options.memory_limit && is_in_bytes(*options.memory_limit)) options.memory_limit.reset();
  return options;
}

StageCosts measured_bytes(World& world, Cell& network, const Loss& loss, const PipelineOptions& options) {
  require<ConfigError>(
      !options.sample.empty() && (!loss.reads_target() || options.sample_targets.count() > 0), "a memory limit of ",
      options.memory_limit ? to_string(*options.memory_limit) : "bytes",
      " needs the bytes of activations, which training steps on PipelineOptions::sample and "
      "sample_targets show: give autotune() a batch with its targets, or StageCosts::activation_bytes");
  PipelineOptions measuring = without_bytes(options);
  measuring.costs.reset();
  const Schedule training = ScheduleCache({.options = measuring, .ranks = world.stages()}).training();
  measuring.memory_limit.reset();
  measuring.custom = one_at_a_time(training);
  measuring.schedule.clear();
  measuring.chunks = 0;
  measuring.weight_gradients = WeightGradients::stream;
  measuring.count_bytes = true;
  Pipeline pipeline(world, network, loss, measuring);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 1e-6); });
  // The first step does not count (runtime/held_bytes.h).
  for (int step = 0; step < 2; ++step) pipeline.train_step(options.sample, options.sample_targets).wait();

  StageCosts costs = options.costs.value_or(StageCosts::unit());
  costs.activation_bytes.clear();
  costs.weight_share = 0;
  for (const StageBytes& stage : Profiler(pipeline).activation_bytes()) {
    const auto most = static_cast<double>(std::max(stage.after_forward, stage.after_input_grad));
    costs.activation_bytes.push_back(most);
    if (most > 0) costs.weight_share = std::max(costs.weight_share, static_cast<double>(stage.after_input_grad) / most);
  }
  return costs;
}

}  // namespace penstock
