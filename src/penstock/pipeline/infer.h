// Inference through a pipeline: options, results, and sessions that keep state between calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "penstock/model/value.h"
#include "penstock/rank/result.h"

namespace penstock::rank {
class InferState;  // shared by the ranks that write the outputs and the caller who reads them; thread-safe
struct SessionState;
}  // namespace penstock::rank

namespace penstock {

class Pipeline;

/// Sequences that continue from one inference call to the next: while a session is open, layers with a SequenceMemory
/// keep their keys and values on their ranks. Copies refer to the same session; destroying the last copy frees the
/// memory. For one pipeline, which need not outlive it; under MPI every process opens, uses and closes its sessions in
/// the same order. Every call of a session has the same number of rows and the same options. Not
/// thread-safe.
class InferenceSession {
 public:
  explicit InferenceSession(Pipeline& pipeline);

  /// Discards the sequences: later calls begin new ones, and may have another number of rows.
  void restart();

 private:
  friend class JobFactory;
  std::shared_ptr<rank::SessionState> state_;
};

struct InferOptions {
  bool broadcast = false;  // every process gets the outputs, not only those that hold the last stage
  ReplicaInput replicas = ReplicaInput::share;
  int micro_batches = 0;  // per replica, at most PipelineOptions::micro_batches; 0: as many as those
  std::optional<InferenceSession> session = std::nullopt;  // none: layers keep no state after the call
  /// In a session: language models may return the logits of the last position only, [n, 1, V] instead of [n, T, V].
  bool last_position = false;
};

/// The result of one inference. Copyable; copies refer to the same result. Used by the thread that uses the pipeline.
class InferResult {
 public:
  InferResult(std::shared_ptr<rank::StepState> step, std::shared_ptr<rank::InferState> state)
      : step_(std::move(step)), state_(std::move(state)) {}

  /// Whether this process gets the outputs: it holds the last stage, or InferOptions::broadcast is set. Always true
  /// under threads.
  bool has_outputs() const;
  /// All values that the network returns, in their order, each with all rows of the batch (along dimension 0, or that
  /// of PipelineOptions::batch_dims); an undefined tensor where the network returns no value. Waits; throws the
  /// RankFailure that ended the inference, and ConfigError where has_outputs() is false. The pipeline does not read or
  /// write these tensors afterwards.
  const Tensors& outputs() const;
  /// The first output.
  const torch::Tensor& output() const { return outputs().front(); }
  /// Whether outputs() would return without waiting.
  bool ready() const;
  /// Waits until every local rank has finished, and until the outputs have arrived where has_outputs() is true.
  void wait() const;

 private:
  std::shared_ptr<rank::StepState> step_;
  std::shared_ptr<rank::InferState> state_;
};

}  // namespace penstock
