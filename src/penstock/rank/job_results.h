// The results of one job on a rank of the last stage: the loss and the metrics of a step, the network's outputs, and
// why a loss is not finite.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/rank/job.h"
#include "penstock/rank/stage.h"

namespace penstock::rank {

/// Thrown by JobResults::add for a loss that is infinite or not a number, in a job that refuses it. It fails the step
/// on all ranks; programs see InvalidLoss (result.h).
class NonFiniteLoss : public Failure {
 public:
  NonFiniteLoss(MicroBatch micro_batch, double loss);

  MicroBatch micro_batch() const { return micro_batch_; }
  double loss() const { return loss_; }
  std::string cause = {};  // what is not finite, as a part of InvalidLoss's message

 private:
  MicroBatch micro_batch_;
  double loss_;
};

/// Accumulates over the micro-batches in the order in which the last stage computes them, which is ascending in every
/// schedule. Carries the numbers of a step to all processes, and the outputs of an inference to those that get them.
/// Used on its rank's thread.
class JobResults {
 public:
  /// `placement` and `setting` must outlive it.
  JobResults(const StagePlacement& placement, const RankSetting& setting) : placement_(placement), setting_(setting) {}

  /// Starts the results of `job`, which must live until clear(). A replica without micro-batches sends its part now.
  void begin(const StepJob& job);
  void clear();

  /// Adds a micro-batch. Returns its loss for the backward pass, before the factor of gradient_factor(); an undefined
  /// tensor for an inference. Called within F of the last stage. Throws NonFiniteLoss on the CPU.
  torch::Tensor add(const Tensors& outputs, BatchRows& rows, MicroBatch micro_batch);
  /// To be called after each F of the last stage. After the last one it sends this replica's results; on a device only
  /// where it has to wait for them, for the outputs of an inference or a loss that may be refused (NonFiniteLoss).
  void end_forward();
  /// On a device, where the losses are still to be sent: queues the copies of them to the host.
  void begin_read_back();
  /// To be called when these copies are complete: sends the results.
  void end_read_back();
  /// The factor of a micro-batch's loss in the gradients of this job.
  double gradient_factor(MicroBatch micro_batch) const { return factors_.gradient[micro_batch.index()]; }
  /// On the rank that collects for its process: waits for the results of all replicas, and writes them to the job's
  /// state. On other ranks it only waits, and only in a job that refuses invalid losses. Does nothing when it is called
  /// again, and for an inference.
  void collect();

  /// Adds the outputs of inference `step` that other ranks sent to this process to `state`; waits for them.
  void receive_outputs(std::uint64_t step, ReplicaInput replicas, InferState& state) const;

 private:
  /// The numbers of a micro-batch, scalars on the device.
  struct Counted {
    MicroBatch micro_batch;
    torch::Tensor loss;
    Tensors metrics;  // undefined where the metric has counted already
  };

  bool is_on_device() const { return !setting_.device.is_cpu(); }
  /// Adds the numbers of a micro-batch, which are on the host.
  void add_numbers(const Counted& counted);
  /// To be called before the host waits for `what` of its device (DataPlane::await_stream).
  void await_device(const std::string& what);
  Tag tag_of(std::uint64_t step, Replica from) const;
  /// Sends this replica's results. Does not wait.
  void send();
  /// Sends this replica's outputs of an inference to every process that gets them, and adds them to this process's
  /// state. The messages stay in the receivers' mailboxes until the program reads them, so that several inferences can
  /// be in flight.
  void send_outputs(Tensors outputs) const;
  void keep_outputs();

  const StagePlacement& placement_;
  const RankSetting& setting_;
  const StepJob* job_ = nullptr;
  LossFactors factors_;
  StepNumbers numbers_;           // of this replica
  std::vector<Counted> counted_;  // of the micro-batches whose numbers are still on the device
  std::vector<Tensors> outputs_;  // by micro-batch, of an inference or with keeps_outputs
  int forwards_left_ = 0;         // of the last stage
  bool has_to_send_ = false;      // the last F has run, and the numbers are still on the device
  bool is_collected_ = false;
};

/// A rank of the last stage whose job has a loss that is not finite.
struct LastForward {
  Stage& stage;
  const Graph& graph;
  const RankSetting& setting;
  const StepJob& job;
  BatchRows& rows;
  const Stage::Arrivals& arrivals;  // of its newest F
};

/// Names the first value of `micro_batch` that is not finite: what the stage receives, the output of a layer or
/// function, a target, or only the loss. Repeats F of the stage with the same random numbers, which changes buffers as
/// F does.
std::string cause_of(const LastForward& last, MicroBatch micro_batch);

/// The error of a step that was cancelled: an InvalidLoss, the same on every rank, if the loss of a rank caused it;
/// null if another error did. Called on every rank. `own`: the error that this rank met. `last_update`: the newest
/// training step that changed the parameters. Throws the errors of the transport.
std::exception_ptr agreed_invalid_loss(const StagePlacement& placement, const RankStages& stages,
                                       const RankSetting& setting, const StepJob& job, const std::exception_ptr& own,
                                       std::optional<std::uint64_t> last_update);

}  // namespace penstock::rank
