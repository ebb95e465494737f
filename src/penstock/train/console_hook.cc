#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <string>

#include "penstock/train/hooks.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int bar_width = 30;
constexpr std::chrono::milliseconds between_redraws{100};

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char line[256];
  std::snprintf(line, sizeof(line), pattern, values...);
  return line;
}

class ConsoleHook : public Hook {
 public:
  ConsoleHook(std::ostream& out, const ConsoleOptions& options) : out_(out), options_(options) {}

  void on_step(const StepReport& report) override {
    if (options_.log_every > 0 && report.step % options_.log_every == 0)
      print(format("epoch: %lld step: %lld, loss is %.9g", static_cast<long long>(report.epoch),
                   static_cast<long long>(report.step), report.loss));
    if (!options_.is_terminal) return;
    // The first step pays for everything that is set up once: it would spoil the rate.
    if (report.step > 0) {
      seconds_ += report.seconds;
      samples_ += report.samples;
      ++timed_steps_;
    }
    const bool is_last = report.step + 1 == report.steps_in_epoch;
    if (Clock::now() - drawn_ >= between_redraws || is_last) draw(report);
    if (is_last) {
      clear();
      seconds_ = 0;
      samples_ = timed_steps_ = 0;
    }
  }

  void on_evaluation(const EvaluationReport& report) override {
    print(format("epoch: %lld test: loss %.6g, accuracy %.4f", static_cast<long long>(report.epoch), report.loss,
                 report.accuracy));
  }

  void on_end() override { clear(); }

 private:
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
    std::string line = format("\r\x1b[K[%s] %lld/%lld", bar.c_str(), static_cast<long long>(done),
                              static_cast<long long>(report.steps_in_epoch));
    if (timed_steps_ > 0 && seconds_ > 0) {
      const double left = seconds_ / static_cast<double>(timed_steps_) *
                          static_cast<double>(report.steps_in_epoch - done);
      line += format("  %.0f samples/s  %lld s left", static_cast<double>(samples_) / seconds_,
                     static_cast<long long>(std::ceil(left)));
    }
    out_ << line << std::flush;
    has_bar_ = true;
    drawn_ = Clock::now();
  }

  std::ostream& out_;
  ConsoleOptions options_;
  bool has_bar_ = false;
  Clock::time_point drawn_;
  double seconds_ = 0;
  std::int64_t samples_ = 0;
  std::int64_t timed_steps_ = 0;
};

}  // namespace

std::unique_ptr<Hook> console_hook(std::ostream& out, const ConsoleOptions& options) {
  return std::make_unique<ConsoleHook>(out, options);
}

}  // namespace penstock
