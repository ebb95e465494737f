#include "penstock/plan/layer_sums.h"

#include <algorithm>
#include <cmath>

namespace penstock {

LayerSums::LayerSums(const LayerCosts& costs, int micro_batches, const Site& site)
    : weight_share_(costs.weight_share),
      instruction_overhead_(costs.instruction_overhead),
      terms_(costs.terms),
      cache_bytes_(costs.cache_bytes),
      ranks_(costs.ranks),
      micro_batches_(micro_batches),
      site_(site),
      first_stage_splits_(costs.first_stage_splits) {
  const auto measured = static_cast<double>(costs.micro_batch_size);
  const double mean = static_cast<double>(costs.samples) / micro_batches / measured;
  const double largest = std::ceil(static_cast<double>(costs.samples) / micro_batches) / measured;
  for (Sums* sums :
       {&forward_, &input_grad_, &weight_grad_, &weight_grad_fused_, &backward_, &update_, &forward_cache_saving_,
        &input_grad_cache_saving_, &activation_bytes_, &parameter_bytes_, &gradient_bytes_})
    sums->push_back(0);
  boundary_bytes_.push_back(0);
  for (const LayerCost& layer : costs.layers) {
    const auto add = [](Sums& sums, double amount) { sums.push_back(sums.back() + amount); };
    add(forward_, layer.forward * mean);
    add(input_grad_, layer.input_grad * mean);
    add(weight_grad_, layer.weight_grad * mean);
    add(weight_grad_fused_, layer.weight_grad_fused.value_or(layer.weight_grad) * mean);
    add(backward_, layer.backward.value_or(layer.input_grad + layer.weight_grad) * mean);
    add(update_, layer.update);
    // An update also reads all parameters from memory, so caching cannot save more time than an update takes. A larger
    // difference has other causes.
    const auto saving = [&](double cost, double cached) {
      return std::clamp((cost - cached) * mean, 0.0, layer.update);
    };
    add(forward_cache_saving_, saving(layer.forward, layer.forward_cached.value_or(layer.forward)));
    add(input_grad_cache_saving_, saving(layer.input_grad, layer.input_grad_cached.value_or(layer.input_grad)));
    has_fused_ = has_fused_ || layer.weight_grad_fused;
    has_backward_ = has_backward_ || layer.backward;
    add(activation_bytes_, std::ceil(layer.activation_bytes * largest));
    add(parameter_bytes_, layer.parameter_bytes);
    add(gradient_bytes_, layer.gradient_bytes.value_or(layer.parameter_bytes / 4));
    boundary_bytes_.push_back(layer.boundary_bytes * mean);
  }
}

double LayerSums::work(LayerRange range, const GradientInstructions& instructions) const {
  if (instructions == GradientInstructions{}) return forward(range) + input_grad(range) + weight_grad(range);
  const double b = has_backward_ ? backward(range) : input_grad(range) + weight_grad(range);
  if (instructions.unsplit == 1) return forward(range) + b;
  double w = weight_grad(range);
  if (has_fused_ && instructions.fused > 0) w += instructions.fused * (weight_grad_fused(range) - w);
  return forward(range) + (1 - instructions.unsplit) * (input_grad(range) + w) + instructions.unsplit * b;
}

double LayerSums::newly_cached_share(LayerRange range) const {
  const double usual = cached_share(parameter_bytes({0, layers()}) / 2 / ranks_);
  return usual < 1 ? std::max(0.0, cached_share(parameter_bytes(range) / 2) - usual) / (1 - usual) : 0;
}

double LayerSums::weight_grad_cache_saving(LayerRange range) const {
  if (!has_cache() || !has_fused() || micro_batches_ == 1) return 0;
  const double once_per_w = (weight_grad(range) - weight_grad_fused(range)) * micro_batches_ / (micro_batches_ - 1);
  return std::clamp(once_per_w, 0.0, update(range)) * cached_share(parameter_bytes(range));
}

GradientInstructions gradient_instructions(const Schedule& schedule) {
  double unsplit = 0;
  double split = 0;
  double singly = 0;  // the part of `split` at the cost of single W's, by the interpolation in simulate()
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order) {
      if (instruction.op() == Op::backward) ++unsplit;
      if (instruction.op() != Op::weight_grad) continue;
      const int group = instruction.micro_batch_count();
      split += group;
      singly += group == 1 ? 1 : static_cast<double>(schedule.micro_batches - group) / (schedule.micro_batches - 1);
    }
  return {unsplit > 0 ? unsplit / (unsplit + split) : 0, split > 0 ? 1 - singly / split : 0};
}

StageCosts stage_costs(const LayerSums& sums, const std::vector<Rank>& rank_of_stage, const Stages& stages) {
  StageCosts costs{.forward = {},
                   .input_grad = {},
                   .weight_grad = {},
                   .update = {0},
                   .terms = sums.terms(),
                   .weight_share = sums.weight_share(),
                   .overhead = sums.instruction_overhead()};
  std::vector<double> reduce;
  if (sums.has_update()) costs.update.clear();
  if (sums.has_cache()) {
    for (auto* saving : {&costs.forward_cache_saving, &costs.input_grad_cache_saving, &costs.weight_grad_cache_saving})
      saving->clear();
  }
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const double slowness = sums.site().slowness(rank_of_stage[s]);
    const auto add = [&](std::vector<double>& list, double cost) { list.push_back(slowness * cost); };
    add(costs.forward, sums.forward(stages[s]));
    add(costs.input_grad, sums.input_grad(stages[s]));
    add(costs.weight_grad, sums.weight_grad(stages[s]));
    costs.activation_bytes.push_back(sums.activation_bytes(stages[s]));
    if (sums.has_fused()) add(costs.weight_grad_fused, sums.weight_grad_fused(stages[s]));
    if (sums.has_backward()) add(costs.backward, sums.backward(stages[s]));
    if (sums.has_update()) add(costs.update, sums.update(stages[s]));
    if (sums.has_cache()) {
      add(costs.forward_cache_saving, sums.forward_cache_saving(stages[s]));
      add(costs.input_grad_cache_saving, sums.input_grad_cache_saving(stages[s]));
      add(costs.weight_grad_cache_saving, sums.weight_grad_cache_saving(stages[s]));
    }
    reduce.push_back(sums.site().reduction(rank_of_stage[s], sums.gradient_bytes(stages[s])));
    if (s == 0) continue;
    const Rank before = rank_of_stage[s - 1], here = rank_of_stage[s];
    const auto message = [&](Rank from, Rank to) {
      if (from == to) return MessageCost{};
      const MessageCost cost = sums.message(stages[s].begin, sums.site().link(from, to));
      costs.message = std::max(costs.message, cost.time);
      costs.message_gap = std::max(costs.message_gap, cost.gap);
      return cost;
    };
    costs.messages_forward.push_back(message(before, here));
    costs.messages_backward.push_back(message(here, before));
  }
  if (std::ranges::any_of(reduce, [](double time) { return time > 0; })) costs.reduce = reduce;
  return costs;
}

double activation_bytes(const LayerSums& sums, const LiveContexts& live, std::span<const LayerRange> stages) {
  double activations = 0;
  for (const std::vector<double>& moment : live) {
    double held = 0;
    for (std::size_t k = 0; k < stages.size(); ++k) held += moment[k] * sums.activation_bytes(stages[k]);
    activations = std::max(activations, held);
  }
  return std::ceil(activations);
}

double held_throughout(const LayerSums& sums, LayerRange stage) {
  return sums.parameter_bytes(stage) + (sums.site().is_of_cluster() ? sums.message_buffers(stage) : 0);
}

double memory_bytes(const LayerSums& sums, const LiveContexts& live, std::span<const LayerRange> stages) {
  double bytes = activation_bytes(sums, live, stages);
  for (const LayerRange& stage : stages) bytes += held_throughout(sums, stage);
  return bytes;
}

std::vector<double> memory_bytes(const LayerSums& sums, const Schedule& schedule, const Stages& stages) {
  const std::vector<LiveContexts> live = live_contexts(schedule, sums.weight_share());
  std::vector<double> bytes;
  for (std::size_t rank = 0; rank < live.size(); ++rank) {
    std::vector<LayerRange> own;
    for (std::size_t s = 0; s < stages.size(); ++s)
      if (schedule.rank_of_stage[s].index() == rank) own.push_back(stages[s]);
    bytes.push_back(memory_bytes(sums, live[rank], own));
  }
  return bytes;
}

namespace {

/// Scales the costs of a stage's layers so that their sum is the measured time.
struct Fit {
  double factor = 1;
  double addend = 0;  // used if all costs are 0

  Fit(double measured, double stated, int layers) {
    if (stated > 0)
      factor = measured / stated;
    else
      addend = measured / layers;
  }

  double operator()(double cost) const { return factor * cost + addend; }
};

/// Scales the costs of the layers of stage `s`, whose sums are `stated`.
void fit_stage(std::size_t s, const MeasuredRun& run, const LayerSums& stated, std::vector<LayerCost>& layers) {
  const LayerRange range = run.stages[s];
  const int count = range.end - range.begin;
  const GradientInstructions instructions = gradient_instructions(run.instructions);
  const double stated_w =
      stated.weight_grad(range) + instructions.fused * (stated.weight_grad_fused(range) - stated.weight_grad(range));
  const double measured_b = run.costs.input_grad[s] + run.costs.weight_grad[s];
  const bool is_split = instructions.unsplit < 1;
  const Fit forward(run.costs.forward[s], stated.forward(range), count);
  const Fit update(run.costs.update[s], stated.update(range), count);
  const Fit backward(measured_b, is_split ? stated.input_grad(range) + stated_w : stated.backward(range), count);
  const Fit input_grad = is_split ? Fit(run.costs.input_grad[s], stated.input_grad(range), count) : backward;
  // If the costs of I and W are unknown as well, I gets all of B.
  Fit weight_grad = is_split ? Fit(run.costs.weight_grad[s], stated_w, count) : backward;
  if (!is_split) weight_grad.addend = 0;
  for (int at = range.begin; at < range.end; ++at) {
    LayerCost& layer = layers[static_cast<std::size_t>(at)];
    layer.forward = forward(layer.forward);
    layer.input_grad = input_grad(layer.input_grad);
    layer.weight_grad = weight_grad(layer.weight_grad);
    if (layer.weight_grad_fused) layer.weight_grad_fused = weight_grad(*layer.weight_grad_fused);
    if (layer.backward) layer.backward = backward(*layer.backward);
    layer.update = update(layer.update);
  }
}

}  // namespace

LayerCosts calibrated(const LayerCosts& costs, const MeasuredRun& run) {
  const int m = run.instructions.micro_batches;
  const LayerSums stated(costs, m);
  LayerCosts fitted = costs;
  fitted.time_unit = "ms";
  fitted.ranks = run.instructions.rank_count();
  fitted.samples = m;  // one unit of work per micro-batch
  fitted.micro_batch_size = 1;
  fitted.micro_batches = {m};
  fitted.instruction_overhead = 0;  // the measured times include it
  fitted.terms.slowdown = 0;        // and this
  fitted.cache_bytes = 0;           // they also include the savings of the cache
  const auto measured_size = static_cast<double>(costs.micro_batch_size);
  const double mean = static_cast<double>(costs.samples) / m / measured_size;
  const double largest = std::ceil(static_cast<double>(costs.samples) / m) / measured_size;
  for (LayerCost& layer : fitted.layers) {
    for (double* time : {&layer.forward, &layer.input_grad, &layer.weight_grad}) *time *= mean;
    if (layer.weight_grad_fused) *layer.weight_grad_fused *= mean;
    if (layer.backward) *layer.backward *= mean;
    layer.activation_bytes = std::ceil(layer.activation_bytes * largest);
    layer.boundary_bytes *= mean;
  }
  for (std::size_t s = 0; s < run.stages.size(); ++s) fit_stage(s, run, stated, fitted.layers);
  const double stated_message = stage_costs(stated, run.instructions.rank_of_stage, run.stages).message;
  if (stated_message > 0 && run.costs.message > 0) {
    const double slower = run.costs.message / stated_message;
    fitted.link.latency *= slower;
    fitted.link.bytes_per_unit /= slower;
  } else {
    fitted.link = {0, run.costs.message};
  }
  return fitted;
}

}  // namespace penstock
