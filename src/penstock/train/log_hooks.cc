// The hooks that write lines for people.
#include "penstock/train/hooks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <string>

#include <unistd.h>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/train/trainer.h"
#include "penstock/transport/joining/launch_environment.h"
#include "penstock/world/host_memory.h"

namespace penstock {
namespace {

/// std::snprintf into a string of at most 255 characters.
template <class... Values>
std::string format_line(const char* pattern, Values... values) {
  char line[256];
  std::snprintf(line, sizeof(line), pattern, values...);
  return line;
}

/// `2500 samples/s`, followed by `, 160000 tokens/s` if there are more targets than samples.
std::string rates(double samples, double targets, double seconds) {
  if (seconds <= 0) return "no time taken";
  const std::string line = format_line("%.4g samples/s", samples / seconds);
  return targets > samples ? line + format_line(", %.4g tokens/s", targets / seconds) : line;
}

constexpr int bar_width = 30;
constexpr std::int64_t between_redraws_ns = 100'000'000;

class ConsoleHook : public Hook {
 public:
  ConsoleHook(std::ostream& out, const ConsoleOptions& options) : out_(out), options_(options) {}

  // Other hooks write their lines between here and after_step and need an empty line.
  void before_step(const TrainingPosition&) override {
    is_redrawn_ = has_bar_;
    clear();
  }

  void after_step(const StepReport& report) override {
    seconds_since_line_ += report.seconds;
    ++steps_since_line_;
    if (options_.log_every > 0 && report.step % options_.log_every == 0) {
      std::string line = format_line("epoch: %lld step: %lld, loss is %.9g", number(report.epoch),
                                     static_cast<long long>(report.step), report.loss);
      if (options_.with_times)
        line += format_line(", %.4g s per step", seconds_since_line_ / static_cast<double>(steps_since_line_));
      print(line);
      seconds_since_line_ = 0;
      steps_since_line_ = 0;
    }
    if (!options_.is_terminal) return;
    // The first step includes one-time setup and would distort the throughput.
    if (report.step > 0) {
      seconds_ += report.seconds;
      samples_ += report.samples;
      ++timed_steps_;
    }
    const bool is_last = report.step + 1 == report.steps_in_epoch;
    if (is_redrawn_ || now_ns() - drawn_ns_ >= between_redraws_ns || is_last) draw(report);
    if (is_last) {
      clear();
      seconds_ = 0;
      samples_ = timed_steps_ = 0;
    }
  }

  void after_epoch(const EpochReport& report) override {
    if (!options_.with_times) return;
    const auto samples = static_cast<double>(report.samples), targets = static_cast<double>(report.targets);
    print(format_line("epoch: %lld train: loss %.6g, %.0f samples in %.3g s, ", number(report.epoch), report.loss,
                      samples, report.seconds) +
          rates(samples, targets, report.seconds));
  }

  void after_test(const EvaluationReport& report) override {
    if (!options_.tests) return;
    std::string line = format_line("epoch: %lld test: loss %.6g", number(report.epoch), report.loss);
    if (report.accuracy) line += format_line(", accuracy %.4f", *report.accuracy);
    for (const Counted& metric : report.metrics)
      if (metric.name != correct.name) line += ", " + metric.name + format_line(" %.6g", metric.mean);
    print(line);
  }

  void on_end() override { clear(); }

 private:
  long long number(std::int64_t epoch) const { return static_cast<long long>(epoch + options_.first_epoch); }

  void print(const std::string& line) {
    clear();
    out_ << line << '\n' << std::flush;
  }

  void clear() {
    if (has_bar_) out_ << "\r\x1b[K" << std::flush;
    has_bar_ = false;
  }

  void draw(const StepReport& report) {
    const std::int64_t done = report.step + 1;
    const auto filled = static_cast<std::size_t>(bar_width * done / std::max<std::int64_t>(report.steps_in_epoch, 1));
    const std::string bar = std::string(filled, '#') + std::string(bar_width - filled, '.');
    std::string line = format_line("\r\x1b[K[%s] %lld/%lld", bar.c_str(), static_cast<long long>(done),
                                   static_cast<long long>(report.steps_in_epoch));
    if (timed_steps_ > 0 && seconds_ > 0) {
      const double left =
          seconds_ / static_cast<double>(timed_steps_) * static_cast<double>(report.steps_in_epoch - done);
      line += format_line("  %.0f samples/s  %lld s left", static_cast<double>(samples_) / seconds_,
                          static_cast<long long>(std::ceil(left)));
    }
    out_ << line << std::flush;
    has_bar_ = true;
    drawn_ns_ = now_ns();
  }

  std::ostream& out_;
  ConsoleOptions options_;
  bool has_bar_ = false;
  bool is_redrawn_ = false;  // the bar was visible before the step
  std::int64_t drawn_ns_ = 0;
  double seconds_ = 0;
  std::int64_t samples_ = 0;
  std::int64_t timed_steps_ = 0;
  double seconds_since_line_ = 0;
  std::int64_t steps_since_line_ = 0;
};

class EpochLogHook : public Hook {
 public:
  explicit EpochLogHook(std::ostream& out) : out_(out) {}

  void after_epoch(const EpochReport& report) override {
    std::string line = head(report.epoch, "Train", report.loss);
    if (report.next_learning_rate) line += format_line(" | LR = %.5g", *report.next_learning_rate);
    print(line);
  }

  void after_test(const EvaluationReport& report) override {
    std::string line = head(report.epoch, "Test", report.loss);
    if (report.accuracy) line += format_line(" | Accuracy = %.5g", *report.accuracy);
    for (const Counted& metric : report.metrics)
      if (metric.name != correct.name) line += " | " + metric.name + format_line(" = %.5g", metric.mean);
    print(line);
  }

 private:
  static std::string head(std::int64_t epoch, const char* what, double loss) {
    return format_line("[Epoch %lld / %s]: Loss = %.5g", static_cast<long long>(epoch), what, loss);
  }
  void print(const std::string& line) { out_ << line + "\n" << std::flush; }

  std::ostream& out_;
};

class LossMonitorHook : public Hook {
 public:
  LossMonitorHook(std::ostream& out, std::int64_t every) : out_(out), every_(every) {
    require<ConfigError>(every >= 1, "a loss line every ", every, " steps: pass 1 or more");
  }

  void after_step(const StepReport& report) override {
    const auto epoch = static_cast<long long>(report.epoch + 1), step = static_cast<long long>(report.step + 1);
    require<Failure>(std::isfinite(report.loss), "epoch: ", epoch, " step: ", step, ", loss is ", report.loss,
                     ". Invalid loss, terminating training: try a lower learning rate");
    if (step % every_ == 0)
      out_ << format_line("epoch: %lld step: %lld, loss is %.9g\n", epoch, step, report.loss) << std::flush;
  }

 private:
  std::ostream& out_;
  std::int64_t every_;
};

class ThroughputHook : public Hook {
 public:
  explicit ThroughputHook(std::ostream& out) : out_(out) {}

  void before_epoch(const TrainingPosition&) override { samples_ = targets_ = seconds_ = 0; }

  void after_step(const StepReport& report) override {
    if (is_first_) {
      is_first_ = false;
      return;
    }
    samples_ += static_cast<double>(report.samples);
    targets_ += static_cast<double>(report.targets);
    seconds_ += report.seconds;
  }

  void after_epoch(const EpochReport& report) override {
    if (samples_ == 0) return;  // the epoch had one step, which is not counted
    out_ << format_line("epoch: %lld, %.0f samples in %.3g s: ", static_cast<long long>(report.epoch), samples_,
                        seconds_)
         << rates(samples_, targets_, seconds_) << "\n"
         << std::flush;
  }

 private:
  std::ostream& out_;
  bool is_first_ = true;
  double samples_ = 0, targets_ = 0, seconds_ = 0;
};

}  // namespace

bool stdout_is_terminal() {
  if (isatty(STDOUT_FILENO) == 0) return false;
  try {
    return joining::launched_as().kind == joining::LaunchedAs::Kind::alone;
  } catch (const ConfigError&) {
    return false;  // several launchers, of which the transport of the world has chosen one
  }
}

std::unique_ptr<Hook> console_hook(std::ostream& out, const ConsoleOptions& options) {
  return std::make_unique<ConsoleHook>(out, options);
}

std::unique_ptr<Hook> epoch_log_hook(std::ostream& out) { return std::make_unique<EpochLogHook>(out); }

std::unique_ptr<Hook> loss_monitor_hook(std::ostream& out, std::int64_t every) {
  return std::make_unique<LossMonitorHook>(out, every);
}

std::unique_ptr<Hook> throughput_hook(std::ostream& out) { return std::make_unique<ThroughputHook>(out); }

void MemoryHook::attached(Trainer& trainer) { trainer_ = &trainer; }

void MemoryHook::after_epoch(const EpochReport& report) {
  MemoryUse use;
  use.epoch = report.epoch;
  use.resident_bytes = resident_bytes();
  // The kernel updates its maximum lazily, so it may be below the present value.
  use.peak_resident_bytes = std::max(peak_resident_bytes(), use.resident_bytes);
  for (const RankPeak& peak : Profiler(trainer_->pipeline()).local_peaks()) {
    use.peak_activations = std::max(use.peak_activations, peak.measured);
    use.peak_activation_bytes = std::max(use.peak_activation_bytes, peak.measured_bytes);
  }
  epochs_.push_back(use);
  if (!out_) return;
  constexpr double mebibyte = 1 << 20;
  *out_ << format_line("epoch: %lld, memory %.1f MiB, at most %.1f MiB, live micro-batches at most %d",
                       static_cast<long long>(use.epoch), static_cast<double>(use.resident_bytes) / mebibyte,
                       static_cast<double>(use.peak_resident_bytes) / mebibyte, use.peak_activations);
  if (use.peak_activation_bytes > 0)
    *out_ << format_line(" (%.1f MiB)", static_cast<double>(use.peak_activation_bytes) / mebibyte);
  *out_ << "\n" << std::flush;
}

void Timing::add(double seconds) {
  ++count;
  last = seconds;
  sum += seconds;
}

std::string TimerHook::table() const {
  std::string text;
  const auto add = [&](const char* what, const Timing& timing) {
    if (timing.count > 0)
      text += format_line("%s: last %.4g s, mean %.4g s, %lld times\n", what, timing.last, timing.mean(),
                          static_cast<long long>(timing.count));
  };
  add("Train-step", train_step_);
  add("Train-epoch", train_epoch_);
  add("Test-step", test_step_);
  add("Test-epoch", test_epoch_);
  return text;
}

}  // namespace penstock
