// The sample dimensions of a pipeline's inputs, targets or outputs; splits and joins tensors along them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/base/split.h"
#include "penstock/model/batch_tensors.h"
#include "penstock/model/loss.h"
#include "penstock/model/value.h"
#include "penstock/rank/metric.h"
#include "penstock/rank/options.h"

namespace penstock {

class BatchAxes {
 public:
  BatchAxes() = default;
  /// `what` is "inputs", "targets" or "outputs". Throws ConfigError for a negative dimension.
  BatchAxes(std::string what, SampleDims dims);

  /// The number of samples of `tensors`; 0 if none of them has samples. Throws ConfigError if a tensor lacks its
  /// dimension or two tensors differ.
  std::int64_t samples(const Tensors& tensors) const;
  /// The given rows of each tensor, as views; tensors without samples are returned unchanged.
  Tensors rows(const Tensors& tensors, RowRange rows) const;
  /// The same for one tensor, with number `index` in the list.
  torch::Tensor rows(const torch::Tensor& tensor, std::size_t index, RowRange rows) const;
  /// Concatenates the parts of every tensor along its samples. The results share no memory with the parts; of a tensor
  /// without samples the first part is taken. Skips undefined tensors. Throws ScheduleError for a part that lacks the
  /// dimension.
  Tensors join(const std::vector<Tensors>& parts) const;

  /// The dimensions as text, such as "0 1 whole", for comparing ranks.
  std::string text() const;
  std::size_t count() const { return dims_.size(); }

 private:
  std::optional<int> dimension(std::size_t index) const { return index < dims_.size() ? dims_[index] : 0; }

  std::string what_ = "tensors";
  SampleDims dims_;
};

/// The axes of one pipeline.
struct BatchAxesOf {
  BatchAxes inputs, targets, outputs;

  /// The number of samples of a batch, from its targets or, where there are none, from its inputs. Throws ConfigError
  /// for 0 samples.
  std::int64_t samples(const BatchTensors& batch_inputs, const BatchTensors& batch_targets) const;
};

/// Throws ConfigError for more dimensions than the network has inputs.
void require_batch_dims(const PipelineOptions& options, int inputs);

/// The inputs that a process may pass.
struct InputRows {
  int inputs = 1;            // number of the network's inputs
  std::int64_t samples = 0;  // of the whole batch
  RowRange share;            // the rows of this process's replica
  bool may_be_share = false;
};
/// The number of the first row of `inputs` within the batch: 0, or the first of the share. Throws ConfigError for
/// inputs that are neither the whole batch nor the share.
std::int64_t first_row_of(const BatchAxes& axes, const Tensors& inputs, const InputRows& rows);

/// Throws ConfigError where the loss or a metric needs targets and there are none.
void require_targets(const Loss& loss, const std::vector<Metric>& metrics, const BatchTensors& targets);

}  // namespace penstock
