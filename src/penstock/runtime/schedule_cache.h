// The schedules of one pipeline: generated, lowered, validated and compiled once for each number of micro-batches.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/runtime/executor.h"
#include "penstock/runtime/options.h"
#include "penstock/schedule/schedule.h"

namespace penstock {

/// One lowered, proven schedule, ready to run.
struct CompiledSchedule {
  CompiledSchedule(Schedule lowered, Links links);

  Schedule schedule;
  Dependencies dependencies;
  std::vector<Program> programs;      // by rank
  std::vector<int> peak_activations;  // by rank, as validate() counted them
};

struct ScheduleRequest {
  PipelineOptions options;
  int ranks = 1;
};

/// What a step is made of where it is taken in parts.
enum class StepPart {
  whole,
  forward_backward,  // everything up to the last micro-batch's gradients
  reduce,            // REDUCE
  update             // NORM and STEP
};

class ScheduleCache {
 public:
  /// Resolves the schedule for m micro-batches. Throws ConfigError or ScheduleError where it cannot be run.
  explicit ScheduleCache(const ScheduleRequest& request);

  /// The compute instructions for the full m: what the stages are numbered by.
  const Schedule& training() const { return training_; }
  /// The generator's name or the file.
  const std::string& source() const { return source_; }
  /// What the stages hand to each other, and whether gradients have to be summed over replicas or ties: known once the
  /// model is partitioned, before the first for_*. What was lowered before is forgotten.
  void set_partition(Links links, bool reduce) {
    links_ = std::move(links);
    reduce_ = reduce;
    known_.clear();
  }

  /// The plan of a training step of `micro_batches` <= m; 0 runs no micro-batch but takes part in REDUCE and STEP.
  std::shared_ptr<const CompiledSchedule> for_training(int micro_batches, StepPart part = StepPart::whole);
  std::shared_ptr<const CompiledSchedule> for_forward(int micro_batches);

 private:
  /// Instructions that no generator made: a file's or the user's own, called `what` in messages.
  void take(const Schedule& given, const std::string& what);
  ScheduleShape shape(int micro_batches) const;
  bool is_fused() const { return request_.options.weight_gradients == WeightGradients::fused; }
  Schedule compute_instructions(int micro_batches) const;
  std::shared_ptr<CompiledSchedule> proven(Schedule lowered) const;
  std::shared_ptr<const CompiledSchedule> training_plan(int micro_batches) const;
  std::shared_ptr<const CompiledSchedule> plan_without_samples();
  std::shared_ptr<const CompiledSchedule> part_of(const CompiledSchedule& whole, StepPart part) const;

  ScheduleRequest request_;
  std::string source_;                    // a generator's name, a file or what a custom schedule is called
  const Generator* generator_ = nullptr;  // null where none made the instructions
  Tuning tuning_;
  Schedule instructions_;  // for the full m, as generated or read
  Schedule training_;      // the same, fused where that was asked for
  Links links_;
  bool reduce_ = false;
  std::map<std::pair<StepPart, int>, std::shared_ptr<const CompiledSchedule>> known_;  // by micro-batches
  std::map<int, std::shared_ptr<const CompiledSchedule>> known_forward_;               // the same
};

}  // namespace penstock
