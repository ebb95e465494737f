#include "penstock/plan/calibrate.h"

#include <cmath>

#include "penstock/plan/layer_sums.h"

namespace penstock {
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
