#include "penstock/train/test_run.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "penstock/base/clock.h"

namespace penstock {
namespace {

struct Submitted {
  StepResult result;
  std::int64_t samples = 0;
};

/// What the steps of a test add up to.
struct Sums {
  std::vector<double> metrics;
  double loss = 0;
  double weight = 0;
  std::int64_t samples = 0;

  void add(const Submitted& step) {
    metrics.resize(step.result.metrics().size());
    for (std::size_t i = 0; i < metrics.size(); ++i) metrics[i] += step.result.metrics()[i];
    loss += step.result.loss_sum();
    weight += step.result.weight();
    samples += step.samples;
  }
};

EvaluationReport report_of(const Sums& sums, const std::vector<Metric>& metrics) {
  EvaluationReport report;
  report.samples = sums.samples;
  report.loss = sums.weight > 0 ? sums.loss / sums.weight : 0;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    // Accuracy is per answer, not per sample: a sample may have several, and masked ones do not count.
    const bool is_accuracy = metrics[i].name == correct.name;
    const double of = is_accuracy ? sums.weight : static_cast<double>(sums.samples);
    const double mean = of > 0 ? sums.metrics[i] / of : 0;
    report.metrics.push_back({metrics[i].name, sums.metrics[i], mean});
    if (is_accuracy) report.accuracy = mean;
  }
  return report;
}

}  // namespace

std::optional<EvaluationReport> run_test(Pipeline& pipeline, Loader& test, const HookList& hooks, TestRun run) {
  TrainingPosition position = run.position;
  position.step = 0;
  position.steps_in_epoch = test.batches_per_epoch();
  TestStepReport step{position.epoch, 0, position.steps_in_epoch, 0, 0};
  const std::int64_t begin = now_ns();
  std::int64_t last = begin;
  Sums sums;
  const auto add = [&](const Submitted& submitted) {
    sums.add(submitted);
    step.samples = submitted.samples;
    step.seconds = s_since(last);
    last = now_ns();
    hooks.report_outputs(submitted.result, step);
    hooks.call(&Hook::after_test_step, step);
    ++step.step;
  };

  const bool keeps_outputs = hooks.want_outputs(WantsOutputs::of_tests);
  hooks.call(&Hook::before_test, position);
  test.set_epoch(0);
  std::optional<Submitted> pending;  // read after the next step was submitted, so that ranks do not wait for that
  for (auto& [inputs, targets] : test) {
    hooks.call(&Hook::before_test_step, position);
    if (targets.count() == 0 && run.may_lack_targets && position.step == 0)
      std::erase_if(run.metrics, [](const Metric& metric) { return metric.name == correct.name; });
    ++position.step;
    Submitted next{pipeline.evaluate(inputs, targets, run.metrics, {.keep_outputs = keeps_outputs}),
                   BatchShare(pipeline).samples(inputs, targets)};
    if (pending) add(*pending);
    pending.emplace(std::move(next));
    if (run.ends_early && position.step < position.steps_in_epoch && run.ends_early()) return std::nullopt;
  }
  if (pending) add(*pending);

  sums.metrics.resize(run.metrics.size());  // of a test without a batch
  EvaluationReport report = report_of(sums, run.metrics);
  report.epoch = position.epoch;
  report.seconds = s_since(begin);
  hooks.call(&Hook::after_test, report);
  return report;
}

}  // namespace penstock
