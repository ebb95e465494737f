#include <cmath>
#include <ostream>

#include "penstock/base/error.h"
#include "penstock/train/hooks.h"
#include "penstock/train/line_format.h"

namespace penstock {
namespace {

class LossMonitorHook : public Hook {
 public:
  LossMonitorHook(std::ostream& out, std::int64_t every) : out_(out), every_(every) {
    require<ConfigError>(every >= 1, "a loss line every ", every, " steps: give 1 or more");
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

}  // namespace

std::unique_ptr<Hook> loss_monitor_hook(std::ostream& out, std::int64_t every) {
  return std::make_unique<LossMonitorHook>(out, every);
}

}  // namespace penstock
