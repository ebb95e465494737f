#include "penstock/train/checkpoint_hook.h"

#include <cmath>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/train/trainer.h"

namespace penstock {

CheckpointHook::CheckpointHook(CheckpointOptions options) : Hook(100), options_(std::move(options)) {
  require<ConfigError>(!options_.folder.empty(), "checkpoints need a folder: set CheckpointOptions::folder");
  require<ConfigError>(options_.keep >= 2, "keep = ", options_.keep,
                       " checkpoints: at least 2 are kept, because the newest may turn out to be damaged");
  const CheckpointEvery& every = options_.every;
  require<ConfigError>(!every.seconds || (*every.seconds > 0 && std::isfinite(*every.seconds)), "a checkpoint every ",
                       every.seconds.value_or(0), " seconds: give a number above 0");
  require<ConfigError>(every.steps.value_or(1) >= 1 && every.epochs.value_or(1) >= 1, "a checkpoint every ",
                       every.steps.value_or(1), " steps or ", every.epochs.value_or(1), " epochs: give at least 1");
}

CheckpointHook::~CheckpointHook() = default;

void CheckpointHook::attached(Trainer& trainer) { trainer.write_checkpoints_with(*this); }

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
  saver_->save({progress.data, std::move(states), options_.texts, options_.metadata});
  newest_ = position;
  last_ns_ = now_ns();
}

void CheckpointHook::check() { saver_->check(); }
void CheckpointHook::finish() { saver_->finish(); }

}  // namespace penstock
