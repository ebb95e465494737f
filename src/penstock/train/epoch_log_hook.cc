#include <ostream>

#include "penstock/train/hooks.h"
#include "penstock/train/line_format.h"

namespace penstock {
namespace {

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

}  // namespace

std::unique_ptr<Hook> epoch_log_hook(std::ostream& out) { return std::make_unique<EpochLogHook>(out); }

}  // namespace penstock
