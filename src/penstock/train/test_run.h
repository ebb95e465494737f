// One pass over a test set, with hooks.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "penstock/data/data.h"
#include "penstock/pipeline/pipeline.h"
#include "penstock/train/hook.h"

namespace penstock {

struct TestRun {
  std::vector<Metric> metrics = {};
  bool may_lack_targets = false;   // then the metric `correct` is left out
  TrainingPosition position = {};  // of the training: its epoch, and its completed steps
  /// Asked between two steps whether the test ends there. The same on every process. Null: never.
  std::function<bool()> ends_early = nullptr;
};

/// Evaluates `pipeline` on `test`. Collective. The results are exact for batches of any size: sums over all samples are
/// divided, not the batches' means averaged. Returns none if the test ended early; after_test is not called then.
/// Passes on exceptions of hooks and of the loader.
std::optional<EvaluationReport> run_test(Pipeline& pipeline, Loader& test, const HookList& hooks, TestRun run);

}  // namespace penstock
