// The schedules of one pipeline: generated, lowered, validated and compiled once for each number of micro-batches.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/rank/job.h"
#include "penstock/rank/options.h"
#include "penstock/schedule/schedule.h"

namespace penstock {

struct ScheduleRequest {
  PipelineOptions options;
  int ranks = 1;
};

/// Not thread-safe.
class ScheduleCache {
 public:
  /// Generates or reads the schedule for m micro-batches. Throws ConfigError or ScheduleError where the pipeline cannot
  /// execute it.
  explicit ScheduleCache(const ScheduleRequest& request);

  /// The compute instructions for the full m; they define the number of stages.
  const Schedule& training() const { return training_; }
  /// The generator's name, the file name, or the name of the custom schedule.
  const std::string& source() const { return source_; }
  /// Sets the links between the stages, and whether gradients have to be summed over replicas or ties. To be called
  /// once the model is partitioned, before the first for_*. Discards the schedules lowered before.
  void set_partition(Links links, bool reduce) {
    links_ = std::move(links);
    reduce_ = reduce;
    known_.clear();
  }

  /// The schedule of a training step of `micro_batches` <= m; with 0 it contains REDUCE, NORM and STEP alone.
  std::shared_ptr<const rank::CompiledSchedule> for_training(int micro_batches,
                                                             rank::StepPart part = rank::StepPart::whole);
  /// The schedule of a forward pass of `micro_batches` <= m, for evaluation and inference.
  std::shared_ptr<const rank::CompiledSchedule> for_forward(int micro_batches);

 private:
  /// Uses instructions from a file or from the user, called `what` in messages.
  void take(const Schedule& given, const std::string& what);
  ScheduleShape shape(int micro_batches) const;
  bool is_fused() const { return request_.options.weight_gradients == WeightGradients::fused; }
  Schedule compute_instructions(int micro_batches) const;
  std::shared_ptr<rank::CompiledSchedule> validated(Schedule lowered) const;
  std::shared_ptr<const rank::CompiledSchedule> compile_training(int micro_batches) const;
  std::shared_ptr<const rank::CompiledSchedule> compile_without_samples();
  std::shared_ptr<const rank::CompiledSchedule> part_of(const rank::CompiledSchedule& whole, rank::StepPart part) const;

  ScheduleRequest request_;
  std::string source_;
  const ScheduleGenerator* generator_ = nullptr;  // null where none made the instructions
  Tuning tuning_;
  Schedule instructions_;  // for the full m, as generated or read
  Schedule training_;      // the same, with fused W's under WeightGradients::fused
  Links links_;
  bool reduce_ = false;
  std::map<std::pair<rank::StepPart, int>, std::shared_ptr<const rank::CompiledSchedule>> known_;  // by micro-batches
  std::map<int, std::shared_ptr<const rank::CompiledSchedule>> known_forward_;                     // the same
};

}  // namespace penstock
