// One pass over a test set, with hooks.
#pragma once

#include <vector>

#include "penstock/data/data.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/train/hook.h"
#include "penstock/train/hook_list.h"

namespace penstock {

struct TestRun {
  std::vector<Metric> metrics = {};
  bool may_lack_targets = false;   // then the metric `correct` is left out
  TrainingPosition position = {};  // of the training: its epoch, and its completed steps
};

/// Evaluates `pipeline` on `test`. Collective. The results are exact for batches of any size: means of sums over all
/// samples, not of the batches' means. Passes on exceptions of hooks and of the loader.
EvaluationReport run_test(Pipeline& pipeline, Loader& test, const HookList& hooks, TestRun run);

}  // namespace penstock
