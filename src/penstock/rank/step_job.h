// One job of a pipeline's ranks: a step or a part of one, an evaluation, or an inference.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "penstock/model/value.h"
#include "penstock/rank/batch_layout.h"
#include "penstock/rank/infer_state.h"
#include "penstock/rank/metric.h"
#include "penstock/rank/schedule_cache.h"
#include "penstock/rank/step_state.h"
#include "penstock/transport/transport.h"

namespace penstock {

/// The factors of the gradients of earlier calls of forward_backward and of those of the newest one.
struct GradientShares {
  bool continues = false;  // there are earlier calls
  double earlier = 1;
  double newest = 1;
};

/// Shared by all local ranks. Immutable once posted.
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
  std::shared_ptr<const DeviceEvents> ready = nullptr;                  // when they are there; null on the CPU
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
  /// Whether the job is a part of a step after its forward_backward.
  bool is_later_part() const { return part == StepPart::reduce || part == StepPart::update; }
};

}  // namespace penstock
