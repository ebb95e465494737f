// Executes the instructions of one rank, with the messages between its stages and all others.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "penstock/base/stream_marks.h"
#include "penstock/model/sequence_memory.h"
#include "penstock/model/stages.h"
#include "penstock/rank/executor.h"
#include "penstock/rank/gradient_reducer.h"
#include "penstock/rank/held_bytes.h"
#include "penstock/rank/job.h"
#include "penstock/rank/job_results.h"
#include "penstock/rank/parameter_updater.h"
#include "penstock/rank/stage.h"
#include "penstock/schedule/instruction.h"
#include "penstock/trace/recorder.h"
#include "penstock/transport/device_hand_over.h"
#include "penstock/transport/transport.h"
#include "penstock/world/device.h"

namespace penstock::rank {

/// The messages of one step between the stages of a rank and all other stages: values forward, gradients backward. Used
/// on its rank's thread.
///
///        take_values +---------+ put_values
///     RECV_F ------> | a stage | ------> SEND_F         Values for a stage of the same rank are there at once,
///     SEND_B <------ | of ours | <------ RECV_B         without SEND and RECV.
///      put_gradients +---------+ take_gradients
class BoundaryMessages {
 public:
  struct Setting {
    std::optional<std::vector<std::int64_t>> shape;  // of every boundary value, where one is declared
    c10::Device device;                              // of the rank
  };
  /// `placement` and `graph` must outlive it.
  BoundaryMessages(const StagePlacement& placement, const Graph& graph, Setting setting);

  /// To be called before a step; its number is part of the messages' tags.
  void begin_step(std::uint64_t step) { step_ = step; }
  /// Discards all messages of the step.
  void clear();

  /// Waits for the message of a RECV, and returns when it arrived. Its tensors are on the rank's device.
  Arrival receive(const Instruction& instruction);
  /// Executes a SEND.
  void send(const Instruction& instruction);

  /// Removes and returns the values that F of `stage` needs: one message per port of stage.receives.
  std::vector<Message> take_values(const StagePart& stage, MicroBatch micro_batch);
  /// Stores the values that F has computed: one message per port of stage.sends. Throws ScheduleError for a value that
  /// does not have the declared shape.
  void put_values(const StagePart& stage, MicroBatch micro_batch, std::vector<Message> messages);
  /// Removes and returns the gradients that B or I of `stage` needs: one message per port of stage.sends, with
  /// undefined tensors for a link that carries no gradient.
  std::vector<Message> take_gradients(const StagePart& stage, MicroBatch micro_batch);
  /// Stores the gradients that B or I has computed: one message per port of stage.receives.
  void put_gradients(const StagePart& stage, MicroBatch micro_batch, std::vector<Message> messages);

 private:
  /// A link of the graph: from the stage that computes its values to the stage that reads them.
  struct Link {
    StageId from;
    StageId to;
  };
  Tag tag_of(Traffic traffic, Link link, MicroBatch micro_batch) const;
  Tag tag_of(const Instruction& message) const;
  void put(const Tag& tag, StageId reader, Message message);
  Message take(const Tag& tag);
  void require_shape(const StagePart& stage, const Port& port, const Message& message) const;

  const StagePlacement& placement_;
  const Graph& graph_;
  const Setting setting_;
  transport::DeviceReceiver from_host_;
  std::uint64_t step_ = 0;
  std::map<Tag, Message> inbox_;   // received, or from another stage of this rank
  std::map<Tag, Message> outbox_;  // computed, not sent yet
};

/// The objects of a rank on which its instructions work; all of them outlive the executor.
struct StepExecutorParts {
  const Graph& graph;
  const RankSetting& setting;
  const RankDevice& device;
  const StagePlacement& placement;
  const RankStages& stages;
  GradientReducer& reducer;
  ParameterUpdater& updater;
  StageClocks& clocks;
};

/// A handler for execute() (executor.h). Owns what belongs to the running step: activations, messages, batch, results.
/// Used on its rank's thread, except for const functions while the rank is idle.
class StepExecutor {
 public:
  explicit StepExecutor(const StepExecutorParts& parts);

  /// Starts `job`, which must live until clear().
  void begin(const StepJob& job);
  /// The job's instructions, to be executed with this object as the handler.
  const Program& program() const { return compiled().programs[own_list()]; }
  /// Executes them on a device: the times of their spans are the device's, and what the host has to know of the step is
  /// read when the device has completed it.
  void run_on_device(Recorder& recorder);
  /// Ends a job that is not a later part of a step: on the rank that collects, waits for its results.
  void end();
  /// Discards what the job left; to be called after every job.
  void clear(bool failed);

  /// The handler of execute().
  void begin(const Instruction& instruction);
  Arrival receive(const Instruction& instruction);
  void perform(const Instruction& instruction);

  /// The instruction that runs, or ran last.
  const Instruction& current() const { return current_; }
  /// Whether an F of the job has not run yet.
  bool has_forwards_left() const { return forwards_left_ > 0; }
  const JobResults& results() const { return results_; }
  /// Frees the layers' memory of an inference session.
  void forget_session(std::uint64_t session) { sessions_.erase(session); }

  /// Peak of live micro-batches.
  int peak_activations() const { return activations_.peak(); }
  /// Predicted peak of live micro-batches, over the executed schedules.
  int predicted_activations() const { return predicted_activations_; }
  /// The bytes of the live micro-batches; null unless PipelineOptions::count_bytes is set.
  const HeldBytes* held_bytes() const { return bytes_.get(); }

 private:
  Stage& stage(StageId id) const;
  const CompiledSchedule& compiled() const { return job_->schedule_of(parts_.placement.replica()); }
  /// The number of this rank's lists in a compiled schedule.
  std::size_t own_list() const { return parts_.placement.rank().index(); }
  /// B, I or W. If it completes the gradients of `stage`, and the job reduces them, sends them.
  void add_gradients(Stage& stage, const Instruction& instruction);
  void backward(Stage& stage, const Instruction& instruction);
  void weight_grad(Stage& stage, const Instruction& instruction);
  SequenceMemory* memory_of(const Stage& stage, MicroBatch micro_batch);
  /// Null in steps whose allocations are not observed, and in those whose bytes are not counted.
  HeldBytes* observed_bytes() const;
  HeldBytes* counted_bytes() const;
  HeldBytes::Context context_of(const Stage& stage, MicroBatch micro_batch) const;
  /// By received value of `stage`: whether it comes from another rank.
  std::vector<bool> comes_from_others(const Stage& stage) const;

  StepExecutorParts parts_;
  BatchRows rows_;
  BoundaryMessages messages_;
  JobResults results_;
  ActivationStore<Activations> activations_;
  std::optional<StreamMarks> marks_;  // on a device
  int predicted_activations_ = 0;
  std::unique_ptr<HeldBytes> bytes_;
  const StepJob* job_ = nullptr;
  Instruction current_;
  std::size_t forwards_left_ = 0;  // of this rank, in this step
  /// Sequence memory by inference session, then by stage and micro-batch.
  std::map<std::uint64_t, std::map<std::pair<StageId, MicroBatch>, SequenceMemory>> sessions_;
};

}  // namespace penstock::rank
