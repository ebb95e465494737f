// Where the samples lie in the inputs, targets or outputs of a pipeline, and how these are split and joined by them.
#pragma once

#include <string>
#include <vector>

#include "penstock/base/split.h"
#include "penstock/model/batch_tensors.h"
#include "penstock/model/loss.h"
#include "penstock/model/value.h"
#include "penstock/runtime/metric.h"
#include "penstock/runtime/options.h"

namespace penstock {

class BatchAxes {
 public:
  BatchAxes() = default;
  /// `what` is "inputs", "targets" or "outputs". Tensors beyond the layouts have their samples along dimension 0.
  /// Throws ConfigError for a negative dimension.
  BatchAxes(std::string what, std::vector<TensorLayout> layouts);

  /// How many samples `tensors` have, 0 where none of them tells. Throws ConfigError where a tensor lacks the dimension
  /// or two tensors differ.
  std::int64_t samples(const Tensors& tensors) const;
  /// These samples of each; whole tensors as they are.
  Tensors rows(const Tensors& tensors, RowRange rows) const;
  /// The same of one tensor, which is number `index`.
  torch::Tensor rows(const torch::Tensor& tensor, std::size_t index, RowRange rows) const;
  /// Parts of every tensor joined along its samples; a single part is copied, so that nobody else holds it. Of a whole
  /// tensor the first part is taken. Undefined tensors are left out. Throws ScheduleError for one that lacks the dimension.
  Tensors join(const std::vector<Tensors>& parts) const;

  /// "0 1 whole", for comparing ranks.
  std::string text() const;
  std::size_t count() const { return layouts_.size(); }

 private:
  const int* dimension(std::size_t index) const;

  std::string what_ = "tensors";
  std::vector<TensorLayout> layouts_;
};

/// Of one pipeline.
struct BatchAxesOf {
  BatchAxes inputs, targets, outputs;

  /// How many samples a batch has: as its targets tell or, where there are none, its inputs. Throws ConfigError where
  /// nothing tells, and where there are none.
  std::int64_t samples(const BatchTensors& batch_inputs, const BatchTensors& batch_targets) const;
};

/// Throws ConfigError for more layouts than the network has inputs.
void require_layouts(const PipelineOptions& options, int inputs);

/// What a process may pass as inputs.
struct InputRows {
  int inputs = 1;  // of the network
  std::int64_t samples = 0;
  RowRange share;  // of this process's replica
  bool may_be_share = false;
};
/// The first row of `inputs` within the batch: 0, or that of the share. Throws ConfigError for inputs that do not fit.
std::int64_t first_row_of(const BatchAxes& axes, const Tensors& inputs, const InputRows& rows);

/// Throws ConfigError where the loss or a metric compares with targets and there are none.
void require_targets(const Loss& loss, const std::vector<Metric>& metrics, const BatchTensors& targets);

}  // namespace penstock
