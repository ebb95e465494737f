// The meeting point of the local ranks of one step and whoever asks for its result.
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
#include "penstock/runtime/batch_axes.h"
#include "penstock/runtime/batch_outputs.h"
#include "penstock/world/failures.h"

namespace penstock {

struct StepNumbers {
  double loss = 0;
  double weight = 0;
  double loss_sum = 0;
  std::vector<double> metrics;
};

/// What one rank did in a training step.
struct RankUse {
  std::int64_t begin_ns = 0;  // of its first compute instruction
  std::int64_t end_ns = 0;    // of its last compute or update instruction
  std::int64_t busy_ns = 0;   // with these
  int peak_activations = 0;
};

class StepState {
 public:
  /// `failures` hears of an error, and who was told of it.
  StepState(int local_ranks, std::shared_ptr<Failures> failures);

  void set_numbers(StepNumbers numbers);
  /// Of all gradients, as every rank knows it.
  void set_gradient_norm(double norm);
  /// The update was left out: a gradient was not finite.
  void set_update_skipped();
  void add_use(const RankUse& use);
  /// What a replica's last rank kept of its rows.
  void add_outputs(Replica replica, BatchOutputs part, const BatchAxesOf& axes);
  /// One local rank is through; with an error if it failed. The first error is kept.
  void rank_done(std::exception_ptr error);

  const StepNumbers& numbers();
  double gradient_norm();
  /// Waits as wait_until_done().
  bool update_skipped();
  bool has_gradient_norm();
  void wait_until_done();
  /// The same, but throws only what still matters: not a StepFailure that somebody has been told.
  void finish();
  /// The same, and throws nothing.
  void settle() noexcept;
  /// Somebody was thrown `error`, an error of this step.
  void told(const std::exception_ptr& error) { failures_->told(error); }
  bool ready();
  /// Every local rank is through, or one has failed.
  bool is_done();
  bool has_failed();
  /// Of all local ranks; after wait_until_done().
  std::vector<RankUse> uses();
  /// Of all local replicas, joined; none where nothing was kept. After wait_until_done().
  std::optional<BatchOutputs> outputs();

 private:
  /// Waits until `condition` holds. Throws ConfigError in a child after fork(), which has no ranks.
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, Condition condition);
  [[noreturn]] void rethrow();

  const std::shared_ptr<Failures> failures_;
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
