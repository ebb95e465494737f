// The parts of a Pipeline, and what its calls have in common. Used by the program's thread.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "penstock/pipeline/fingerprint.h"
#include "penstock/pipeline/jobs.h"
#include "penstock/rank/rank_runner.h"
#include "penstock/rank/result.h"

namespace penstock {

class PipelineImpl {
 public:
  PipelineImpl(World& in_world, Cell& network, Loss given_loss, const PipelineOptions& given);

  World& world() const { return runners->world(); }
  const StagedGraph& staged() const { return runners->staged(); }
  Fingerprint fingerprint() const {
    return fingerprint_of(options, {world(), staged(), schedules.training(), loss, axes});
  }
  /// Compares the ranks' settings, and lowers the schedules for the parameters that train. Collective.
  void lower();
  /// Pipeline::freeze() and unfreeze().
  std::vector<std::string> set_trainable(const std::string& pattern, bool trains);

  /// Waits for all submitted jobs; throws the error of a failed one.
  void drain();
  /// drain(), then runs `work` on every local rank's thread.
  void on_each_rank(const rank::LocalRunners::Work& work) {
    drain();
    runners->run(work);
  }
  /// The error of state_dict() after the world has failed because of `failure`: it names the newest checkpoint.
  RankFailure no_state(const std::string& failure) const;
  /// Throws ConfigError while the average replaces the parameters.
  void require_own_values() const;

  StepResult forward_backward(const BatchTensors& inputs, const BatchTensors& targets, const StepOptions& how);
  void later_part(rank::StepPart part, double divisor);

  PipelineOptions options;
  Loss loss;
  rank::BatchAxesOf axes;
  std::uint32_t number;  // of the pipeline in its world
  ScheduleCache schedules;
  std::shared_ptr<rank::LocalRunners> runners;
  std::shared_ptr<const rank::CompiledSchedule> full_schedule;  // for all m micro-batches
  JobFactory jobs;
  StepParts parts;
  Inferences inferences;
  std::set<std::string> damaged;  // checkpoints that load() skipped
  std::string checkpoint_folder;  // of the newest CheckpointSaver
  bool has_optimizer = false;
  bool uses_average = false;
  int exceptions = std::uncaught_exceptions();  // may be above 0 where a destructor makes the pipeline
};

}  // namespace penstock
