#include <ostream>

#include <nlohmann/json.hpp>

#include "penstock/base/json.h"
#include "penstock/train/hooks.h"

namespace penstock {
namespace {

using Line = nlohmann::ordered_json;

class JsonHook : public Hook {
 public:
  explicit JsonHook(std::ostream& out) : out_(out) {}

  void after_step(const StepReport& report) override {
    const double rate = report.seconds > 0 ? static_cast<double>(report.samples) / report.seconds : 0;
    Line line{{"epoch", report.epoch}, {"step", report.step}, {"loss", report.loss}};
    if (report.learning_rate) line["lr"] = *report.learning_rate;
    if (report.gradient_norm) line["grad_norm"] = *report.gradient_norm;
    if (report.update_skipped) line["update_skipped"] = *report.update_skipped;
    line.update(Line{{"samples", report.samples}, {"step_ms", report.seconds * 1e3}, {"samples_per_s", rate}});
    if (report.targets > report.samples && report.seconds > 0)
      line["tokens_per_s"] = static_cast<double>(report.targets) / report.seconds;
    if (report.bubble) line["bubble"] = *report.bubble;
    if (report.peak_activations) line["peak_activations"] = *report.peak_activations;
    if (report.peak_resident_bytes) line["peak_resident_bytes"] = *report.peak_resident_bytes;
    write(line);
  }

  void after_skipped_step(const SkippedStep& report) override {
    write({{"epoch", report.epoch},
           {"step", report.step},
           {"left_out", report.count},
           {"reason", report.reason},
           {"samples", report.samples}});
  }

  void after_test(const EvaluationReport& report) override {
    Line line{{"epoch", report.epoch}, {"test_loss", report.loss}};
    if (report.accuracy) line["test_accuracy"] = *report.accuracy;
    for (const Counted& metric : report.metrics)
      if (metric.name != correct.name) line["test_" + metric.name] = metric.mean;
    line["test_samples"] = report.samples;
    write(line);
  }

 private:
  // Flushed per line, so that a killed run loses at most its last line.
  void write(const Line& line) { out_ << json_text(line) + "\n" << std::flush; }

  std::ostream& out_;
};

}  // namespace

std::unique_ptr<Hook> json_hook(std::ostream& out) { return std::make_unique<JsonHook>(out); }

}  // namespace penstock
