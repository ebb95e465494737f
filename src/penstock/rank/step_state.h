// The state of one step: written by its local ranks, read through StepResult.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/rank/batch_axes.h"
#include "penstock/rank/batch_outputs.h"
#include "penstock/world/failures.h"
#include "penstock/world/rank_watch.h"

namespace penstock {

struct StepNumbers {
  double loss = 0;
  double weight = 0;
  double loss_sum = 0;
  std::vector<double> metrics;
};

/// How long one rank was busy in a training step.
struct RankUse {
  std::int64_t begin_ns = 0;  // of its first compute instruction
  std::int64_t end_ns = 0;    // of its last compute or update instruction
  std::int64_t busy_ns = 0;   // total time of these instructions
  int peak_activations = 0;
};

/// Thread-safe. Getters wait until their value is available, and throw the error that ended the step. A local rank that
/// stalls meanwhile, or hangs after a failure of the world, is such an error.
class StepState {
 public:
  /// Records errors, and whether they were reported, in `failures`. `rank_watch` is that of the world.
  StepState(int local_ranks, std::shared_ptr<Failures> failures, std::shared_ptr<const RankWatch> rank_watch);

  void set_numbers(StepNumbers numbers);
  /// The norm of all gradients; every rank sets the same value.
  void set_gradient_norm(double norm);
  /// Records that the update was skipped because a gradient was not finite.
  void set_update_skipped();
  void add_use(const RankUse& use);
  /// Adds the outputs of a replica's rows, on the rank of the last stage.
  void add_outputs(Replica replica, BatchOutputs part, const BatchAxesOf& axes);
  /// One local rank has finished; with an error if it failed. The first error is kept.
  void rank_done(std::exception_ptr error);

  const StepNumbers& numbers();
  double gradient_norm();
  /// Waits as wait_until_done().
  bool update_skipped();
  bool has_gradient_norm();
  void wait_until_done();
  /// The same, but does not throw a StepFailure that was reported before.
  void finish();
  /// Waits as finish() and throws nothing.
  void settle() noexcept;
  /// Records that a call of the program has thrown `error`, an error of this step.
  void mark_reported(const std::exception_ptr& error) { failures_->mark_reported(error); }
  /// Throws ConfigError in a child process after fork(), in which the step makes no progress.
  void require_own_process() const;
  bool ready();
  /// Whether every local rank has finished, or one has failed.
  bool is_done();
  bool has_failed();
  /// The use of all local ranks; to be called after wait_until_done().
  std::vector<RankUse> uses();
  /// The outputs of all local replicas, joined; none where no rank added any. To be called after wait_until_done().
  std::optional<BatchOutputs> outputs();

 private:
  /// Waits until `condition` holds. Throws ConfigError in a child after fork(), which has no ranks.
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, const Condition& condition);
  /// The same in any process.
  template <class Condition>
  void wait_here(std::unique_lock<std::mutex>& lock, const Condition& condition);
  [[noreturn]] void rethrow();

  const std::shared_ptr<Failures> failures_;
  const std::shared_ptr<const RankWatch> rank_watch_;
  const long process_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<StepNumbers> numbers_;
  std::optional<double> gradient_norm_;
  bool update_skipped_ = false;
  std::vector<RankUse> uses_;
  std::map<Replica, BatchOutputs> outputs_;
  BatchAxesOf axes_;
  std::exception_ptr error_;
  int running_;
};

}  // namespace penstock
