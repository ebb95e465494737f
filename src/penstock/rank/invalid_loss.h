// The error of a training step whose loss is infinite or not a number (StepOptions::refuse_invalid_loss).
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "penstock/world/failures.h"

namespace penstock {

/// A training step whose loss is infinite or not a number.
struct InvalidStep {
  std::uint64_t step = 0;  // the number of training steps before it, as random numbers count them
  double loss = 0;         // of the micro-batch
  int replica = 0;         // if several have such a loss, one of them
  int replicas = 1;        // of the pipeline
  int micro_batch = 0;     // the first one of the replica
  int stage = 0;           // the last one, which computes the loss
  /// What is not finite: a parameter of any stage, an input of the batch, or the first value of the last stage.
  std::string cause = {};
  /// If a parameter is not finite: the newest training step that has updated the parameters. None before the first one,
  /// and after parameters were loaded.
  std::optional<std::uint64_t> spoiled_by = {};
};

/// "the loss of training step 12 is nan in micro-batch 3 (stage 1): the output of layer 'layer2' (stage 1) is not
/// finite, though its inputs and parameters are".
std::string text_of(const InvalidStep& invalid);
/// "nan", "inf" or "-inf", without the sign that NaN has on some processors; other numbers as they are written.
std::string text_of_loss(double loss);

/// The loss of a training step is infinite or not a number. Nothing was updated: the pipeline remains usable, with the
/// state before the step. The message is the same on every process.
class InvalidLoss : public StepFailure {
 public:
  explicit InvalidLoss(const InvalidStep& invalid) : InvalidLoss(invalid, text_of(invalid)) {}
  /// With a message of the caller's.
  InvalidLoss(const InvalidStep& invalid, const std::string& message) : StepFailure(message), invalid_(invalid) {}

  const InvalidStep& where() const { return invalid_; }

 private:
  InvalidStep invalid_;
};

bool is_invalid_loss(const std::exception_ptr& error);

}  // namespace penstock
