// What the program's thread and the ranks' threads share: the setting of a pipeline, its jobs, and the states of jobs,
// which the ranks write and the program reads through StepResult and InferResult.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "penstock/base/ids.h"
#include "penstock/kernels/kernels.h"
#include "penstock/model/loss.h"
#include "penstock/model/value.h"
#include "penstock/rank/batch.h"
#include "penstock/rank/executor.h"
#include "penstock/rank/options.h"
#include "penstock/rank/result.h"
#include "penstock/rank/stage.h"
#include "penstock/schedule/schedule.h"
#include "penstock/transport/transport.h"
#include "penstock/world/failures.h"
#include "penstock/world/rank_context.h"
#include "penstock/world/rank_watch.h"

namespace penstock::rank {

/// What a rank knows of its pipeline: the options, and what was made of them for this rank. A plain value, the same on
/// every rank but for `context` and `device`.
struct RankSetting {
  std::uint32_t pipeline = 0;
  RankContext context;
  Loss loss;
  std::shared_ptr<const PipelineOptions> options;
  c10::Device device = c10::kCPU;  // of this rank
  std::shared_ptr<const kernels::KernelSelection> kernels = nullptr;
  BatchAxesOf axes = {};
};

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

/// The state of one step: written by its local ranks, read through StepResult. Thread-safe. Getters wait until their
/// value is available, and throw the error that ended the step. A local rank that stalls meanwhile, or hangs after a
/// failure of the world, is such an error.
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

  /// Waits until every local rank has finished, or one has failed, and throws its error. Returns with the state locked.
  std::unique_lock<std::mutex> wait_until_done();
  /// wait_until_done(), but does not throw a StepFailure that was reported before.
  void finish();
  /// Waits as finish() and throws nothing.
  void settle() noexcept;
  /// Records that a call of the program has thrown `error`, an error of this step.
  void mark_reported(const std::exception_ptr& error) { failures_->mark_reported(error); }
  /// Throws ConfigError in a child process after fork(), in which the step makes no progress.
  void require_own_process() const;
  /// Whether every local rank has finished, or one has failed.
  bool is_done();
  bool has_failed();

 private:
  friend class penstock::StepResult;

  /// Waits until `condition` holds or the step has failed, and returns with the state locked. Throws ConfigError in a
  /// child after fork(), which has no ranks.
  template <class Condition>
  std::unique_lock<std::mutex> ended(const Condition& condition);
  /// The same, and throws the error of a failed step.
  template <class Condition>
  std::unique_lock<std::mutex> awaited(const Condition& condition);
  const StepNumbers& numbers();

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

/// The state of one inference: written by its ranks, read through InferResult. Thread-safe.
class InferState : public std::enable_shared_from_this<InferState> {
 public:
  struct Expected {
    int parts = 0;         // number of replicas whose outputs come to this process
    std::string not_here;  // the error text where that is 0
    /// Starts receiving the outputs that other processes send; empty where none are sent here.
    std::function<void(std::shared_ptr<InferState>)> fetch;
    BatchAxes axes = {};                                    // of the outputs
    std::shared_ptr<const RankWatch> rank_watch = nullptr;  // never null
  };
  explicit InferState(Expected expected) : expected_(std::move(expected)) {}

  bool comes_here() const { return expected_.parts > 0; }
  /// Whether another process sends outputs here. To be called before the first fetch().
  bool is_sent_here() const { return expected_.fetch != nullptr; }
  const std::string& not_here() const { return expected_.not_here; }

  /// Adds one replica's outputs, which are empty for a replica without rows.
  void add_part(Replica replica, Tensors outputs);
  void fail(std::exception_ptr error);

  /// Starts receiving the outputs of other processes, at the first call. Until then the messages wait in the mailbox,
  /// so that this rank can begin its next job.
  void fetch();
  /// Waits for the outputs of all parts; throws the error of fail(), and that of RankWatch::wait().
  const Tensors& outputs();
  /// Whether outputs() would return without waiting.
  bool ready();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Expected expected_;
  std::map<Replica, Tensors> parts_;
  std::optional<Tensors> outputs_;
  std::exception_ptr error_;
};

/// One inference, as every local rank gets it. Immutable.
struct Inference {
  bool broadcast = false;
  ReplicaInput replicas = ReplicaInput::share;
  std::optional<std::uint64_t> session;
  bool last_position = false;
  std::shared_ptr<InferState> state;
};

class LocalRunners;

/// What the calls of an inference session have in common. Used by the program's thread.
struct SessionState {
  std::uint64_t id = 0;
  std::optional<std::int64_t> rows = std::nullopt;  // of the calls so far; none before the first call
  ReplicaInput replicas = ReplicaInput::share;      // InferOptions of the calls so far
  int micro_batches = 0;                            // the same
  const LocalRunners* pipeline = nullptr;           // identifies the session's pipeline; not dereferenced
  std::function<void(std::uint64_t)> forget;        // frees the session's memory on this process's ranks

  SessionState() = default;
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;
  ~SessionState() {
    if (forget) forget(id);
  }
};

/// A lowered and validated schedule, ready to execute.
struct CompiledSchedule {
  CompiledSchedule(Schedule lowered, Links of_model);

  Schedule schedule;
  Links links;
  Dependencies dependencies;
  std::vector<Program> programs;      // by rank
  std::vector<int> peak_activations;  // by rank, as validate() counted them
};

/// The parts of a step (Pipeline::forward_backward, reduce_gradients, step).
enum class StepPart {
  whole,
  forward_backward,  // everything up to the last micro-batch's gradients
  reduce,            // REDUCE
  update             // NORM and STEP
};

/// The factors of the gradients of earlier calls of forward_backward and of those of the newest one.
struct GradientShares {
  bool continues = false;  // there are earlier calls
  double earlier = 1;
  double newest = 1;
};

/// A step or a part of one, an evaluation, or an inference. Shared by all local ranks. Immutable once posted.
struct StepJob {
  std::uint64_t step = 0;           // number among all submitted jobs, evaluations too; part of message tags
  std::uint64_t training_step = 0;  // number of training steps before it
  bool training = true;
  StepPart part = StepPart::whole;
  double gradient_divisor = 1;  // of the part `reduce`
  BatchLayout layout;
  std::vector<std::shared_ptr<const CompiledSchedule>> schedules = {};  // by replica
  Tensors inputs = {};                                                  // by graph input: rows from first_input_row on
  std::int64_t first_input_row = 0;                                     // 0 for the whole batch
  Tensors targets = {};                                                 // of the whole batch
  std::shared_ptr<const transport::DeviceEvents> ready = nullptr;       // when they are there; null on the CPU
  std::vector<Metric> metrics = {};
  std::optional<double> learning_rate = std::nullopt;  // from this step on; none: unchanged
  std::shared_ptr<StepState> state = nullptr;
  std::optional<Inference> inference = std::nullopt;  // set for an inference, which computes no loss
  bool keeps_outputs = false;                         // StepOptions::keep_outputs
  GradientShares shares = {};                         // under gradient accumulation
  /// StepOptions::refuse_invalid_loss. Every rank then waits for the losses of all replicas before its first update.
  bool refuses_invalid_loss = false;
  bool require_previous = false;  // StepOptions::require_previous

  const CompiledSchedule& schedule_of(Replica replica) const { return *schedules[replica.index()]; }
  /// The replica whose share of the batch `replica` computes.
  Replica share_of(Replica replica) const {
    return inference && inference->replicas == ReplicaInput::each ? Replica(0) : replica;
  }
  /// Whether the job is a part of a step after its forward_backward.
  bool is_later_part() const { return part == StepPart::reduce || part == StepPart::update; }
};

/// The rows of a job's batch that one rank reads, on the rank's device. Used on its rank's thread.
class BatchRows {
 public:
  /// `placement` and `axes` must outlive it.
  BatchRows(const StagePlacement& placement, const BatchAxesOf& axes, c10::Device device)
      : placement_(placement), axes_(axes), device_(device) {}

  /// Uses the batch of `job`, which must live until clear().
  void begin(const StepJob& job) { job_ = &job; }
  void clear();

  /// The rows of a micro-batch within the whole batch.
  RowRange of(MicroBatch micro_batch) const;
  /// The number of micro-batches that this rank's replica computes.
  int micro_batches() const { return job_->layout.micro_batches(share()); }
  /// The inputs that `stage` reads: one tensor per stage.graph_inputs.
  Tensors inputs(const StagePart& stage, MicroBatch micro_batch);
  Tensors targets(MicroBatch micro_batch);

  /// Compares the batch with those of the other ranks (compare_digests). Collective; throws BatchesDiffer on every
  /// rank.
  void compare(const RankStages& stages) const;

 private:
  enum class Kind { inputs, targets };

  Replica share() const { return job_->share_of(placement_.replica()); }
  /// `rows` counted from the first row that the job has of its inputs.
  RowRange input_rows(RowRange rows) const;
  torch::Tensor usable(Kind kind, std::size_t index, RowRange rows);

  const StagePlacement& placement_;
  const BatchAxesOf& axes_;
  c10::Device device_;
  const StepJob* job_ = nullptr;
  std::map<std::pair<Kind, std::size_t>, torch::Tensor> whole_;  // tensors without samples, on the device
};

}  // namespace penstock::rank
