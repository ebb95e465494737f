// Carries results from the ranks of the last stage to the processes: the loss and metrics of a step to all of them, the
// outputs of an inference to those that get them.
#pragma once

#include <cstdint>

#include "penstock/rank/infer_state.h"
#include "penstock/rank/stage_placement.h"
#include "penstock/rank/step_state.h"

namespace penstock {

/// Used on its rank's thread. Sending does not wait.
class ResultChannel {
 public:
  /// `placement` must outlive it.
  explicit ResultChannel(const StagePlacement& placement) : placement_(placement) {}

  enum class To {
    processes,  // to the rank of each process that collects
    ranks
  };
  /// Sends this replica's part of a step's numbers. To be called on the rank of the last stage, right after its last F.
  void send(std::uint64_t step, const StepNumbers& part, To to) const;
  /// The sum of the replicas' parts; waits for them. To be called on the ranks to which they are sent.
  StepNumbers receive(std::uint64_t step) const;

  /// Sends this replica's outputs of an inference to every process that gets them, and adds them to this process's
  /// state. To be called where send() is for other steps. The messages stay in the receivers' mailboxes until the
  /// program reads them, so that several inferences can be in flight.
  void send_outputs(std::uint64_t step, const Inference& inference, Tensors outputs) const;
  /// Adds the outputs that other ranks sent to this process; waits for them.
  void receive_outputs(std::uint64_t step, ReplicaInput replicas, InferState& state) const;

 private:
  Tag tag_of(std::uint64_t step, Replica from) const;

  const StagePlacement& placement_;
};

}  // namespace penstock
