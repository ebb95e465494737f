// The submitted inferences and open sessions of one pipeline. Used by the program's thread.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "penstock/pipeline/infer.h"
#include "penstock/rank/infer_state.h"
#include "penstock/rank/local_runners.h"
#include "penstock/rank/session_state.h"
#include "penstock/rank/step_job.h"

namespace penstock {

class Inferences {
 public:
  /// The settings of all inferences of the pipeline.
  struct Setting {
    int inputs = 1;         // number of the network's inputs
    int micro_batches = 1;  // of the pipeline
    Rank last;              // the rank that holds the last stage
    BatchAxesOf axes = {};
  };
  Inferences(std::shared_ptr<LocalRunners> runners, const Setting& setting)
      : runners_(std::move(runners)), setting_(setting) {}

  std::shared_ptr<SessionState> open_session();

  /// The job of step `step`, without its schedules and its state. Throws ConfigError for invalid inputs or options.
  StepJob make_job(std::uint64_t step, const Tensors& inputs, const InferOptions& options) const;
  /// The number of micro-batches that a replica computes of the job.
  int micro_batches(const StepJob& job, Replica replica) const;
  /// Records a job that is about to be posted. Waits first where too many are in flight.
  void add(const StepJob& job);
  /// Waits for all jobs. Throws the error of a failed one, except for a StepFailure that was reported before.
  void finish();
  /// The same, but never throws, and after a failure of the world does not wait for a rank that hangs.
  void settle() noexcept;

 private:
  std::int64_t rows_of(const Tensors& inputs) const;
  void join_session(SessionState& session, std::int64_t rows, const InferOptions& options) const;
  InferState::Expected expected_outputs(std::uint64_t step, const InferOptions& options) const;
  std::size_t most_under_way();
  void finish_oldest();

  const World& world() const { return runners_->world(); }

  std::shared_ptr<LocalRunners> runners_;
  Setting setting_;
  /// The jobs since the last finish(), with the state of the outputs where this process has to receive them.
  std::deque<std::pair<std::shared_ptr<StepState>, std::shared_ptr<InferState>>> under_way_;
  std::vector<std::weak_ptr<SessionState>> sessions_;
  std::uint64_t next_session_ = 0;
};

}  // namespace penstock
