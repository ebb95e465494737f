// The earlier values of one stage's parameters and buffers, from which state() takes those of the last complete step
// after a failure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "penstock/runtime/stage.h"

namespace penstock {

/// Steps are numbered by StepJob::training_step. Several of them may form one update (gradient accumulation), and
/// cancelled ones change nothing. "The state before step n" is the state that all earlier steps left.
///
/// Buffers change in F, so they are copied before the first F of an update. Parameters change in the update; they are
/// copied before it on request alone, because that takes their memory once more.
///
/// Used on its rank's thread, and by const functions while the rank is idle.
class StageHistory {
 public:
  explicit StageHistory(bool keeps_parameters) : keeps_parameters_(keeps_parameters) {}

  /// To be called before every F of training step `step`.
  void before_forward(const Stage& stage, std::uint64_t step);
  /// To be called before step `step` changes trained parameters. Where it does not, nothing needs to be called.
  void before_update(const Stage& stage, std::uint64_t step);
  /// To be called when step `step` will not change the stage any more.
  void end_update(std::uint64_t step) { completed_ = step + 1; }
  /// Gives the buffers the values that they had before the cancelled step.
  void undo_forward(const Stage& stage);
  /// Forgets parameters: to be called between steps, when other parameters are trained from now on.
  void forget_parameters();
  /// Forgets everything: the stage has been given the values that `step` steps left. To be called between steps.
  void begin_at(std::uint64_t step);

  /// The first step that the stage has not completed.
  std::uint64_t completed() const { return completed_; }
  /// The oldest step before which the values of all parameters are known. Above completed() after a failure in the
  /// middle of an update, where parameters are not kept.
  std::uint64_t oldest() const { return oldest_; }
  /// A parameter or buffer of the stage before step `step`, which is oldest() or later and completed() or earlier.
  const torch::Tensor& value_before(std::uint64_t step, const Stage::Held& held) const;

 private:
  struct Copies {
    std::uint64_t step = 0;  // the values are those before this step
    std::map<std::string, torch::Tensor> values = {};
  };

  bool keeps_parameters_;
  std::uint64_t completed_ = 0;
  std::uint64_t oldest_ = 0;
  std::uint64_t after_change_ = 0;  // the step after the newest that changed parameters
  Copies parameters_;               // before the newest update that changed them; reused
  std::deque<Copies> buffers_;      // before the newest updates, in ascending order
};

/// Those of a rank's stages.
class StageHistories {
 public:
  explicit StageHistories(bool keeps_parameters) : keeps_parameters_(keeps_parameters) {}

  void add(StageId stage) { histories_.emplace(stage, StageHistory(keeps_parameters_)); }
  StageHistory& of(StageId stage) { return histories_.at(stage); }
  const StageHistory& of(StageId stage) const { return histories_.at(stage); }
  void undo_forward(const RankStages& stages);
  void forget_parameters();
  void begin_at(std::uint64_t step);

  /// Between these steps, both included, all of the rank's stages have one known state: nowhere where `oldest` is above
  /// `completed`.
  struct KnownSteps {
    static constexpr std::string_view record_name = "KnownSteps";
    std::uint64_t completed = 0;
    std::uint64_t oldest = 0;
  };
  KnownSteps known_steps() const;

 private:
  bool keeps_parameters_;
  std::map<StageId, StageHistory> histories_;
};

}  // namespace penstock
