#include "penstock/state/pipeline_states.h"

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/kernels/kernel_selection.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/weight_gradients.h"

namespace penstock {
namespace {

constexpr const char* scaler_state = "loss_scaler";
constexpr const char* rate_state = "learning_rate";

/// Groups of micro-batches whose weight gradients one product computes. Those of fused and stream follow from m.
std::string grouping_of(const Schedule& schedule) {
  const WeightGradients mode = weight_gradients_of(schedule);
  if (mode != WeightGradients::grouped) return to_string(mode);
  std::map<StageId, std::string> by_stage;
  for (const auto& order : schedule.orders)
    for (const Instruction& instruction : order)
      if (instruction.op() == Op::weight_grad) by_stage[instruction.stage()] += to_string(instruction) + " ";
  std::string text;
  for (const auto& [stage, groups] : by_stage) text += groups;
  return say(to_string(mode), " ", hash_digits(text_hash(text)));
}

}  // namespace

BitSettings bit_settings(const PipelineOptions& options, const World& world, const Schedule& schedule) {
  return {.micro_batches = options.micro_batches,
          .replicas = world.replicas(),
          .threads = world.threads(),
          .kernels = kernels_from(options.kernels, options.kernel_selection)->fingerprint(),
          .precision = to_string(options.precision),
          .grouping = grouping_of(schedule)};
}

void add_loss_scaler(States& states, const LossScaler& scaler) {
  if (!scaler.is_dynamic()) return;
  const LossScaler::State state = scaler.state();
  states[scaler_state] = {{"scale", state.scale}, {"good_steps", std::int64_t{state.good_steps}}};
}

std::optional<LossScaler::State> loss_scaler_in(const States& states) {
  const auto found = states.find(scaler_state);
  if (found == states.end()) return std::nullopt;
  return LossScaler::State{number_in(found->second, "scale"), static_cast<int>(whole_in(found->second, "good_steps"))};
}

void add_learning_rate(States& states, std::optional<double> rate) {
  if (rate) states[rate_state] = {{"rate", *rate}};
}

std::optional<double> learning_rate_in(const States& states) {
  const auto found = states.find(rate_state);
  if (found == states.end()) return std::nullopt;
  return number_in(found->second, "rate");
}

}  // namespace penstock
