#include "penstock/train/progress.h"

#include "penstock/runtime/pipeline_states.h"

namespace penstock {

StateValues state_of(const TrainingProgress& progress) {
  const EpochReport& report = progress.epoch_report;
  StateValues state{{"completed", progress.completed},       {"steps_per_epoch", progress.steps_per_epoch},
                    {"epoch_steps", report.steps},           {"epoch_samples", report.samples},
                    {"epoch_targets", report.targets},       {"epoch_loss", report.loss},
                    {"epoch_weight", progress.epoch_weight}, {"epoch_left_out", report.skipped},
                    {"left_out", progress.skipped.all},      {"left_out_in_a_row", progress.skipped.in_a_row}};
  if (progress.stopped) state["stopped"] = *progress.stopped;
  if (progress.owes_test) state["owes_test"] = std::int64_t{1};
  return state;
}

TrainingProgress progress_in(const StateValues& state, const DataPosition& data) {
  TrainingProgress progress{data, whole_in(state, "completed"), whole_in(state, "steps_per_epoch")};
  progress.epoch_report.epoch = data.epoch;
  progress.epoch_report.steps = whole_in(state, "epoch_steps");
  progress.epoch_report.samples = whole_in(state, "epoch_samples");
  progress.epoch_report.targets = whole_in(state, "epoch_targets");
  progress.epoch_report.loss = number_in(state, "epoch_loss");
  progress.epoch_weight = number_in(state, "epoch_weight");
  progress.epoch_report.skipped = whole_in(state, "epoch_left_out");
  progress.skipped = {whole_in(state, "left_out_in_a_row"), whole_in(state, "left_out")};
  progress.owes_test = state.contains("owes_test");
  if (const auto stopped = state.find("stopped"); stopped != state.end())
    if (const auto* reason = std::get_if<std::string>(&stopped->second)) progress.stopped = *reason;
  return progress;
}

}  // namespace penstock
