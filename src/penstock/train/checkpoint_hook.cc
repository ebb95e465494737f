#include "penstock/train/checkpoint_hook.h"

#include <cmath>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/pipeline/pipeline.h"
#include "penstock/state/saved_state.h"

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

CheckpointHook::CheckpointHook(CheckpointOptions options) : Hook(100), options_(std::move(options)) {
  require<ConfigError>(!options_.folder.empty(), "checkpoints need a folder: set CheckpointOptions::folder");
  require<ConfigError>(options_.keep >= 2, "keep = ", options_.keep,
                       " checkpoints: at least 2 are kept, because the newest may turn out to be damaged");
  const CheckpointEvery& every = options_.every;
  require<ConfigError>(!every.seconds || (*every.seconds > 0 && std::isfinite(*every.seconds)), "a checkpoint every ",
                       every.seconds.value_or(0), " seconds: pass a number above 0");
  require<ConfigError>(every.steps.value_or(1) >= 1 && every.epochs.value_or(1) >= 1, "a checkpoint every ",
                       every.steps.value_or(1), " steps or ", every.epochs.value_or(1), " epochs: pass at least 1");
}

CheckpointHook::~CheckpointHook() = default;

void CheckpointHook::on_end() { saver_.reset(); }

void CheckpointHook::open(Pipeline& pipeline, std::optional<SavedPosition> newest) {
  saver_ = pipeline.checkpoints({options_.folder, options_.keep, options_.on_saved});
  newest_ = newest;
  last_ns_ = now_ns();
}

bool CheckpointHook::is_due_by_steps(const TrainingPosition& next) const {
  if (next.completed == 0 || newest_ == SavedPosition{next.completed}) return false;
  const CheckpointEvery& every = options_.every;
  return (every.steps && next.completed % *every.steps == 0) ||
         (every.epochs && next.step == 0 && next.epoch % *every.epochs == 0);
}

bool CheckpointHook::is_due_by_time() const {
  return options_.every.seconds && s_since(last_ns_) >= *options_.every.seconds;
}

void CheckpointHook::write(const TrainingProgress& progress, std::map<std::string, StateValues> states) {
  const SavedPosition position{progress.completed, progress.owes_test};
  if (position == newest_) return;
  states["trainer"] = state_of(progress);
  saver_->save({progress.data, std::move(states), options_.texts, options_.metadata, options_.trained_only});
  newest_ = position;
  last_ns_ = now_ns();
}

void CheckpointHook::check() { saver_->check(); }
void CheckpointHook::finish() { saver_->finish(); }

}  // namespace penstock
