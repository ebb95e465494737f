// Inference through a pipeline: what one asks for, what one gets, and what stays between calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "penstock/model/value.h"
#include "penstock/runtime/replica_input.h"

namespace penstock {

struct SessionState;

/// Sequences that go on from one inference call to the next: while a session is open, the layers that remember
/// (SequenceMemory) keep their keys and values on their ranks. Copies are the same session; when the last one goes, its
/// memory is freed. Made by Pipeline::open_session, for that pipeline alone; under MPI every process opens, uses and
/// closes its sessions in the same order. Every call of a session has the same rows and settings. Not thread-safe.
class InferenceSession {
 public:
  /// Forgets the sequences, for the calls that are made from now on: they may have other rows.
  void restart();

 private:
  friend class Pipeline;
  friend class Inferences;
  explicit InferenceSession(std::shared_ptr<SessionState> state) : state_(std::move(state)) {}
  std::shared_ptr<SessionState> state_;
};

struct InferOptions {
  bool broadcast = false;  // every process gets the outputs, not only those that hold the last stage
  ReplicaInput replicas = ReplicaInput::share;
  int micro_batches = 0;  // into which a replica's rows are cut, at most the pipeline's own; 0: those
  std::optional<InferenceSession> session = std::nullopt;  // none: nothing is remembered
};

/// Shared by the ranks that write it and the caller who asks. Thread-safe.
class InferState;
class StepState;

/// The outcome of one inference. Copyable. For the thread that uses the pipeline.
class InferResult {
 public:
  InferResult(std::shared_ptr<StepState> step, std::shared_ptr<InferState> state)
      : step_(std::move(step)), state_(std::move(state)) {}

  /// Whether this process gets the outputs: it holds the last stage, or asked for broadcast. Always under threads.
  bool has_outputs() const;
  /// Everything that the network returns, each along all rows of the batch (dimension 0, or that of
  /// PipelineOptions::output_layout), in their order; an undefined
  /// tensor where it returns none. Waits, and throws the RankFailure that ended it. Throws ConfigError where
  /// has_outputs() is false. Nobody else looks at these tensors.
  const Tensors& outputs() const;
  /// The first output.
  const torch::Tensor& output() const { return outputs().front(); }
  /// True when asking would not wait.
  bool ready() const;
  /// Waits until every local rank has done its part, and the outputs are here where they come here.
  void wait() const;

 private:
  std::shared_ptr<StepState> step_;
  std::shared_ptr<InferState> state_;
};

}  // namespace penstock
