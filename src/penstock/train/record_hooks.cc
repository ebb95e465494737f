// The hooks that write numbers for other programs.
#include "penstock/train/hooks.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/rank/result.h"
#include "penstock/train/event_file.h"

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

/// Where a training goes on: at a step, or in the test after all steps of an epoch.
struct Begin {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  bool is_test = false;
};

/// Whether a line is about a step or a test from `begin` on.
bool is_repeated(const std::string& line, const Begin& begin) {
  const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return false;
  const auto number = [&](const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
  };
  const std::int64_t epoch = number("epoch");
  if (number("step") < 0) return begin.is_test && object.contains("test_loss") && epoch >= begin.epoch;
  return begin.is_test ? epoch > begin.epoch : std::pair(epoch, number("step")) >= std::pair(begin.epoch, begin.step);
}

void remove_repeated_lines(const std::string& path, const Begin& begin) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return;
  std::ifstream file(path, std::ios::binary);
  require<Failure>(file.is_open(), path, ": cannot be read, to continue it");
  std::uintmax_t kept = 0;
  bool removes = false;
  for (std::string line; !removes && std::getline(file, line);) {
    const bool breaks_off = file.eof() && line.starts_with("{");
    removes = breaks_off || is_repeated(line, begin);
    if (!removes) kept += line.size() + 1;
  }
  require<Failure>(!file.bad(), path, ": cannot be read, to continue it");
  if (!removes) return;
  std::filesystem::resize_file(path, kept, code);
  require<Failure>(!code, path, ": the lines of steps that are repeated cannot be removed: ", code.message());
}

class ContinueJson final : public Hook {
 public:
  ContinueJson(std::ofstream& out, ContinuedJson file) : out_(out), file_(std::move(file)) {}

  void before_epoch(const TrainingPosition& next) override { open({next.epoch, next.step}); }
  void before_test(const TrainingPosition& behind) override { open({behind.epoch, 0, true}); }

 private:
  void open(const Begin& begin) {
    if (out_.is_open()) return;
    if (file_.replaces) remove_repeated_lines(file_.path, begin);
    out_.open(file_.path, std::ios::app);
    require<Failure>(out_.is_open(), file_.path, ": cannot be opened for writing");
  }

  std::ofstream& out_;
  const ContinuedJson file_;
};

class TensorBoardHook : public Hook {
 public:
  explicit TensorBoardHook(const std::string& directory) : file_(directory) {}

  // Of a training that is resumed from a checkpoint that was written without this hook.
  void before_epoch(const TrainingPosition& next) override { begin_at(next); }
  void before_test(const TrainingPosition& behind) override { begin_at(behind); }
  void after_step(const StepReport& report) override {
    std::vector<Scalar> scalars{{"train/loss", report.loss}};
    const auto add = [&](const char* tag, const auto& number) {
      if (number) scalars.emplace_back(tag, static_cast<double>(*number));
    };
    add("train/learning_rate", report.learning_rate);
    add("train/gradient_norm", report.gradient_norm);
    if (report.seconds > 0) {
      scalars.emplace_back("throughput/samples_per_second", static_cast<double>(report.samples) / report.seconds);
      if (report.targets > report.samples)
        scalars.emplace_back("throughput/tokens_per_second", static_cast<double>(report.targets) / report.seconds);
    }
    add("throughput/bubble", report.bubble);
    add("memory/peak_activations", report.peak_activations);
    add("memory/peak_resident_bytes", report.peak_resident_bytes);
    file_.add(++steps_, scalars);
  }

  void after_test(const EvaluationReport& report) override {
    std::vector<Scalar> scalars{{"test/loss", report.loss}};
    if (report.accuracy) scalars.emplace_back("test/accuracy", *report.accuracy);
    for (const Counted& metric : report.metrics)
      if (metric.name != correct.name) scalars.emplace_back("test/" + metric.name, metric.mean);
    file_.add(steps_, scalars);
  }

  // A later run continues the numbers of the steps.
  StateValues save() const override { return {{"steps", steps_}}; }
  void load(const StateValues& state) override { steps_ = whole_in(state, "steps"); }
  std::string name() const override { return "tensorboard"; }

 private:
  void begin_at(const TrainingPosition& position) {
    if (steps_ == 0) steps_ = position.completed;
  }

  EventFile file_;
  std::int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<Hook> json_hook(std::ostream& out) { return std::make_unique<JsonHook>(out); }

std::unique_ptr<Hook> continue_json(std::ofstream& out, const ContinuedJson& file) {
  return std::make_unique<ContinueJson>(out, file);
}

std::unique_ptr<Hook> tensorboard_hook(const std::string& directory) {
  return std::make_unique<TensorBoardHook>(directory);
}

}  // namespace penstock
