// The error of a training step whose loss is infinite or not a number (StepOptions::refuse_invalid_loss).
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "penstock/world/failures.h"

namespace penstock {

/// A value of a step that is not finite.
struct InvalidValue {
  enum class Kind {
    none,       // a second forward pass of the batch was finite, or failed
    input,      // an input of the batch
    parameter,  // a parameter, before the step
    layer,      // an output of a layer whose inputs and parameters are finite
    function,   // the same of a function
    target,     // a target of the batch
    loss        // the loss alone: its function's arguments are finite
  };
  Kind kind = Kind::none;
  std::string name;     // "0" of an input or a target; the full name of a layer or parameter; that of the loss
  int stage = 0;        // the lowest stage that has it
  bool has_nan = true;  // false: it has infinite numbers only
};

/// A training step whose loss is infinite or not a number.
struct InvalidStep {
  std::uint64_t step = 0;  // the number of training steps before it, as random numbers count them
  double loss = 0;         // of the micro-batch
  int replica = 0;
  int replicas = 1;  // of the pipeline
  int micro_batch = 0;
  int stage = 0;  // the last one, which computes the loss
  /// The first in network order that is not finite.
  InvalidValue first = {};
  /// Where `first` has infinite numbers only, as a mask may have: the first value that has a NaN, if any.
  std::optional<InvalidValue> first_nan = {};
  /// The newest training step that has updated the parameters; none before the first one, and after parameters were
  /// loaded.
  std::optional<std::uint64_t> last_update = {};
  std::string search_failure = {};  // why `first` is not known, where the second forward pass failed
};

/// "the loss of training step 12 is nan in micro-batch 3 (stage 1): the output of layer 'layer2' (stage 0) is not
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
