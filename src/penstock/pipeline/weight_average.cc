#include "penstock/pipeline/weight_average.h"

#include "penstock/base/error.h"
#include "penstock/pipeline/pipeline_impl.h"

namespace penstock {

WeightAverage::WeightAverage(Pipeline& pipeline, double decay) : pipeline_(pipeline) {
  require<ConfigError>(decay >= 0 && decay < 1, "an average of the weights with a decay of ", decay,
                       ": pass a number from 0 on and below 1, such as 0.999");
  PipelineImpl& impl = *pipeline.impl_;
  impl.require_own_values();
  impl.on_each_rank([&](rank::RankRunner& runner) { runner.updater().average().keep(decay); });
}

void WeightAverage::use(bool average) {
  PipelineImpl& impl = *pipeline_.impl_;
  impl.parts.require_whole_steps("WeightAverage::use");
  if (average == impl.uses_average) return;
  impl.on_each_rank([](rank::RankRunner& runner) { runner.updater().average().swap(); });
  impl.uses_average = average;
}

StateDict WeightAverage::state_dict() {
  const bool before = pipeline_.impl_->uses_average;
  use(true);
  StateDict average = pipeline_.state_dict();
  use(before);
  return average;
}

}  // namespace penstock
