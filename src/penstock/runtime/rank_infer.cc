// RankRunner: sequence memory and outputs of inference.
#include "penstock/base/error.h"
#include "penstock/runtime/rank_runner.h"

namespace penstock {
namespace {

Tag tag_of_outputs(const RankSetting& setting, std::uint64_t step, Replica from) {
  return {setting.pipeline, Traffic::result, step, from.value(), 0, 0};
}

Message outputs_message(const Tensors& outputs) {
  Message message;
  for (const torch::Tensor& output : outputs) message.payloads.push_back({output, false});
  return message;
}

Tensors outputs_in(const Message& message) {
  Tensors outputs;
  // Received tensors are read-only, and may be views of larger ones.
  for (const Payload& payload : message.payloads)
    outputs.push_back(payload.tensor.defined() ? payload.tensor.clone() : payload.tensor);
  return outputs;
}

}  // namespace

Replica RankRunner::share_of_batch() const {
  return job_->inference && job_->inference->replicas == ReplicaInput::each ? Replica(0) : replica_;
}

SequenceMemory* RankRunner::memory_of(const Stage& stage, MicroBatch micro_batch) {
  if (!job_->inference || !job_->inference->session) return nullptr;
  return &sessions_[*job_->inference->session][{stage.id(), micro_batch}];
}

// Sends a replica's outputs to every process that gets them, after the replica's last F. They stay in the receivers'
// mailboxes until the program reads them (fetch_outputs), so that several inferences can be in flight.
void RankRunner::report_outputs() {
  const Inference& inference = *job_->inference;
  const bool is_each = inference.replicas == ReplicaInput::each;
  Tensors joined = setting_.axes.outputs.join(outputs_);
  outputs_.clear();
  if (context().is_alone) {
    if (!is_each || replica_ == Replica(0)) inference.state->add_part(replica_, std::move(joined));
    return;
  }
  for (WorldRank to(0); to.value() < context().world_size(); to = to.next()) {
    const bool is_last = to.value() / context().replicas == rank_.value();
    const bool is_ours = to.value() % context().replicas == replica_.value();
    if (to != context().rank && (inference.broadcast || is_last) && (!is_each || is_ours))
      endpoint().send(to, tag_of_outputs(setting_, job_->step, replica_), outputs_message(joined));
  }
  // A copy: receivers in this process share the sent tensors, and the program may change its own.
  for (torch::Tensor& output : joined)
    if (output.defined()) output = output.clone();
  inference.state->add_part(replica_, std::move(joined));
}

// Stores the outputs of an evaluation or training step for StepResult::outputs(), in this process alone.
void RankRunner::keep_outputs() {
  if (outputs_.empty()) return;
  const RowRange share = job_->layout.share(replica_);
  const BatchAxesOf& axes = setting_.axes;
  // Copies, because the caller may overwrite the batch once the loss is available.
  BatchOutputs kept{axes.outputs.join(outputs_), axes.targets.join({axes.targets.rows(job_->targets, share)}), share};
  job_->state->add_outputs(replica_, std::move(kept), axes);
  outputs_.clear();
}

void RankRunner::fetch_outputs(std::uint64_t step, ReplicaInput replicas, InferState& state) {
  try {
    const Rank last = placement_.rank_of(staged_.parts.back().id);
    for (Replica from(0); from.value() < context().replicas; from = from.next()) {
      const WorldRank rank = context().rank_of(last, from);
      if (rank == context().rank) continue;
      if (replicas == ReplicaInput::each && from != replica_) continue;
      const Message message = endpoint().receive(rank, tag_of_outputs(setting_, step, from), "the outputs");
      state.add_part(from, outputs_in(message));
    }
  } catch (...) {
    state.fail(failed(std::current_exception(), say("the outputs of step ", step)));
  }
}

}  // namespace penstock
