#include "penstock/launch/restart_limit.h"

#include <tuple>

#include "penstock/base/error.h"

namespace penstock {

std::optional<CheckpointPlace> newest_complete(const std::string& folder) {
  if (folder.empty()) return std::nullopt;
  try {
    const NewestCheckpoint newest = newest_checkpoint(folder, CheckpointCheck::structure);
    if (newest.checkpoint) return place_of_checkpoint(newest.checkpoint->directory());
  } catch (const DataError&) {  // the folder does not exist yet: the training makes it
  }
  return std::nullopt;
}

RestartLimit::Decision RestartLimit::after_failure() {
  if (done_ == allowed_) return Decision::used_up;
  ++done_;
  return Decision::restart;
}

RestartLimit::Decision RestartLimit::after_failure(const std::optional<CheckpointPlace>& newest) {
  const bool is_new =
      newest && (!newest_ || std::tie(newest->step, newest->attempt) > std::tie(newest_->step, newest_->attempt));
  if (is_new) {
    newest_ = newest;
    without_progress_ = 0;
  } else if (done_ > 0) {
    ++without_progress_;
  }
  if (without_progress_ == most_without_progress) return Decision::no_progress;
  return after_failure();
}

}  // namespace penstock
