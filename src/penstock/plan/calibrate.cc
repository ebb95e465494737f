#include "penstock/plan/calibrate.h"

#include <cmath>

#include "penstock/plan/layer_sums.h"

namespace penstock {
namespace {

/// What turns the figures of a stage's layers into what the stage took.
struct Fit {
  double factor = 1;
  double addend = 0;  // where there is nothing to multiply

  Fit(double measured, double told, int layers) {
    if (told > 0)
      factor = measured / told;
    else
      addend = measured / layers;
  }

  double operator()(double cost) const { return factor * cost + addend; }
};

/// Applies what was measured of stage `s` to its layers.
void fit_stage(std::size_t s, const MeasuredRun& run, const LayerSums& told, std::vector<LayerCost>& layers) {
  const LayerRange range = run.stages[s];
  const int count = range.end - range.begin;
  const GradientInstructions instructions = gradient_instructions(run.instructions);
  const double told_w =
      told.weight_grad(range) + instructions.fused * (told.weight_grad_fused(range) - told.weight_grad(range));
  const double measured_b = run.costs.input_grad[s] + run.costs.weight_grad[s];
  const bool is_split = instructions.unsplit < 1;
  const Fit forward(run.costs.forward[s], told.forward(range), count);
  const Fit update(run.costs.update[s], told.update(range), count);
  const Fit backward(measured_b, is_split ? told.input_grad(range) + told_w : told.backward(range), count);
  const Fit input_grad = is_split ? Fit(run.costs.input_grad[s], told.input_grad(range), count) : backward;
  // Where nothing is known of B's halves, I is all of it.
  Fit weight_grad = is_split ? Fit(run.costs.weight_grad[s], told_w, count) : backward;
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
  const LayerSums told(costs, m);
  LayerCosts fitted = costs;
  fitted.time_unit = "ms";
  fitted.ranks = run.instructions.rank_count();
  fitted.samples = m;  // of one micro-batch each
  fitted.micro_batch_size = 1;
  fitted.micro_batches = {m};
  fitted.instruction_overhead = 0;  // what instructions took has it in it, and what the cache spared them
  fitted.cache_bytes = 0;           // so what it would spare is not looked at
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
  for (std::size_t s = 0; s < run.stages.size(); ++s) fit_stage(s, run, told, fitted.layers);
  const double told_message = stage_costs(told, run.instructions.rank_of_stage, run.stages).message;
  if (told_message > 0 && run.costs.message > 0) {
    const double slower = run.costs.message / told_message;
    fitted.link.latency *= slower;
    fitted.link.bytes_per_unit /= slower;
  } else {
    fitted.link = {0, run.costs.message};
  }
  return fitted;
}

}  // namespace penstock
