#include "penstock/launch/restart_limit.h"

#include <algorithm>

#include "penstock/base/error.h"

namespace penstock {

std::vector<CheckpointPlace> complete_checkpoints(const std::string& folder) {
  std::vector<CheckpointPlace> complete;
  if (folder.empty()) return complete;
  try {
    visit_checkpoints(folder, [&](const OpenedCheckpoint& opened) {
      if (const auto place = place_of_checkpoint(opened.path); place && opened.checkpoint) complete.push_back(*place);
    });
  } catch (const DataError&) {  // the folder does not exist yet: the training makes it
  }
  return complete;
}

RestartLimit::Decision RestartLimit::after_failure() {
  if (done_ == allowed_) return Decision::used_up;
  ++done_;
  return Decision::restart;
}

RestartLimit::Decision RestartLimit::after_failure(const std::vector<CheckpointPlace>& complete) {
  const bool has_new = std::any_of(complete.begin(), complete.end(), [&](const CheckpointPlace& place) {
    return std::find(complete_.begin(), complete_.end(), place) == complete_.end();
  });
  complete_ = complete;
  if (has_new)
    without_progress_ = 0;
  else if (done_ > 0)
    ++without_progress_;
  if (without_progress_ == most_without_progress) return Decision::no_progress;
  return after_failure();
}

}  // namespace penstock
