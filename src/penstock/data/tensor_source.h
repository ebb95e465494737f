// Samples from tensors in memory: any number of inputs and targets.
#pragma once

#include <memory>
#include <vector>

#include "penstock/data/sample_source.h"

namespace penstock {

/// The layout of the tensors and of the resulting batches, one entry per tensor, as in PipelineOptions::input_layout
/// and target_layout. Tensors without an entry have their samples along dimension 0.
struct TensorSourceOptions {
  std::vector<TensorLayout> input_layout = {};
  std::vector<TensorLayout> target_layout = {};
};

/// Makes a source of the samples of `inputs` and `targets`, which may be empty: `tensor_source({tokens, mask},
/// labels)`. Tensors with layout Whole are part of every batch as they are. The source shares the tensors' memory: do
/// not modify them while it lives. Throws ConfigError if the tensors differ in the number of samples, or if the inputs
/// have none.
std::shared_ptr<const SampleSource> tensor_source(const BatchTensors& inputs, const BatchTensors& targets = {},
                                                  const TensorSourceOptions& options = {});

}  // namespace penstock
