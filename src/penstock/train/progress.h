// The position of a training between two steps, as checkpoints hold it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "penstock/checkpoint/manifest.h"
#include "penstock/train/hook.h"
#include "penstock/train/skipped_steps.h"

namespace penstock {

/// A plain value. EpochReport::loss of `epoch_report` is a weighted sum until the epoch ends.
struct TrainingProgress {
  DataPosition data = {};
  std::int64_t completed = 0;               // steps of this training, over all epochs
  std::int64_t steps_per_epoch = 0;         // batches of the training set
  EpochReport epoch_report = {};            // of the epoch that has begun
  double epoch_weight = 0;                  // the total weight of its losses
  std::optional<std::string> stopped = {};  // the reason given to Trainer::stop()
  SkippedSteps::Counts skipped = {};
  bool owes_test = false;  // the epoch's steps are done, and the test behind them is not
};

StateValues state_of(const TrainingProgress& progress);
/// The inverse; `data` comes from the manifest. Throws DataError for a missing member.
TrainingProgress progress_in(const StateValues& state, const DataPosition& data);

}  // namespace penstock
