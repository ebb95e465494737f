#include <ostream>

#include "penstock/train/hooks.h"
#include "penstock/train/line_format.h"

namespace penstock {
namespace {

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

std::unique_ptr<Hook> throughput_hook(std::ostream& out) { return std::make_unique<ThroughputHook>(out); }

}  // namespace penstock
