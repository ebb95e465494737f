// What one is told while a Trainer runs: derive from Hook, or use the ready ones.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>

namespace penstock {

/// One training step, when its loss is known.
struct StepReport {
  std::int64_t epoch = 0;           // 0-based
  std::int64_t step = 0;            // within the epoch, 0-based
  std::int64_t steps_in_epoch = 0;
  std::int64_t samples = 0;         // of this batch, over all replicas
  double loss = 0;
  double seconds = 0;               // since the step before it (or the start)
  std::optional<double> learning_rate = {};  // none where the Trainer does not set it
  std::optional<double> gradient_norm = {};  // before clipping; none where the pipeline does not clip
};

/// A pass over a test set.
struct EvaluationReport {
  std::int64_t epoch = 0;    // after which it was made
  std::int64_t samples = 0;
  double loss = 0;           // mean over the samples, whatever the pipeline's reduction
  double accuracy = 0;       // share of samples whose largest logit is the target's
};

/// Called on every process, in the order in which the hooks were given. The library itself prints nothing.
class Hook {
 public:
  virtual ~Hook() = default;
  virtual void on_step(const StepReport&) {}
  virtual void on_evaluation(const EvaluationReport&) {}
  /// After the last step, also of a training that ends with an error.
  virtual void on_end() {}
};

struct ConsoleOptions {
  std::int64_t log_every = 10;  // steps between two loss lines, counted within the epoch from 0; 0: none
  bool is_terminal = false;     // true: a progress bar below the lines; false: no carriage return, no escape
};

/// `epoch: 0 step: 10, loss is 2.27094173` and, after an evaluation, `epoch: 0 test: loss 0.29, accuracy 0.9183`.
/// `out` must outlive the hook.
std::unique_ptr<Hook> console_hook(std::ostream& out, const ConsoleOptions& options);

/// One JSON object a line: {"epoch", "step", "loss", "lr", "samples", "step_ms", "samples_per_s"} for every step,
/// "lr" where the Trainer sets it and "grad_norm" where the pipeline clips,
/// {"epoch", "test_loss", "test_accuracy", "test_samples"} for every evaluation. `out` must outlive the hook.
std::unique_ptr<Hook> json_hook(std::ostream& out);

}  // namespace penstock
