#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>

#include <unistd.h>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/train/hooks.h"
#include "penstock/train/line_format.h"
#include "penstock/transport/launch_environment.h"

namespace penstock {
namespace {

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

}  // namespace

bool stdout_is_terminal() {
  if (isatty(STDOUT_FILENO) == 0) return false;
  try {
    return launched_as().kind == LaunchedAs::Kind::alone;
  } catch (const ConfigError&) {
    return false;  // several launchers, of which the transport of the world has chosen one
  }
}

std::unique_ptr<Hook> console_hook(std::ostream& out, const ConsoleOptions& options) {
  return std::make_unique<ConsoleHook>(out, options);
}

}  // namespace penstock
