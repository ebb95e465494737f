// Samples that lie in memory as tensors: any number of inputs and targets.
#pragma once

#include <memory>
#include <vector>

#include "penstock/data/sample_source.h"

namespace penstock {

/// How the samples lie in the tensors, and in the batches that come of them: as PipelineOptions::input_layout and
/// target_layout have it.
struct TensorSourceOptions {
  std::vector<TensorLayout> input_layout = {};
  std::vector<TensorLayout> target_layout = {};
};

/// The samples of `inputs` and `targets`, of which there may be none: `tensor_source({tokens, mask}, labels)`. Whole
/// tensors go into every batch as they are. The tensors must not be changed as long as the source lives. Throws
/// ConfigError where they differ in the number of samples, or have none.
std::shared_ptr<const SampleSource> tensor_source(const BatchTensors& inputs, const BatchTensors& targets = {},
                                                  const TensorSourceOptions& options = {});

}  // namespace penstock
