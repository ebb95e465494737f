// The rows of a batch that each replica and micro-batch computes, and their weights in the loss.
#pragma once

#include <optional>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/base/split.h"
#include "penstock/model/loss.h"
#include "penstock/rank/batch_axes.h"

namespace penstock {

class BatchLayout {
 public:
  struct Shape {
    std::int64_t samples = 0;  // of the whole batch
    int replicas = 1;          // d
    int micro_batches = 1;     // m; a share of fewer samples has fewer micro-batches
  };
  explicit BatchLayout(const Shape& shape) : shape_(shape) {}

  std::int64_t samples() const { return shape_.samples; }
  const Shape& shape() const { return shape_; }
  /// A replica's rows of the batch: contiguous, larger shares first.
  RowRange share(Replica replica) const;
  /// min(m, samples of the share).
  int micro_batches(Replica replica) const;
  /// A micro-batch's rows of the whole batch.
  RowRange rows(Replica replica, MicroBatch micro_batch) const;

 private:
  Shape shape_;
};

/// Warns where the largest share of a replica has fewer samples than there are micro-batches. To be called for the
/// first batch alone, because a short batch after full ones is the end of an epoch.
void warn_of_few_samples(const BatchLayout& layout);

/// How rows of a batch are used.
struct RowsUse {
  c10::Device device = c10::kCPU;
  bool outlive_result = false;  // a backward pass reads them after the step's result is available
};

/// `rows` of the caller's batch on the device. Where they outlive the result they share no memory with the batch, which
/// the caller may overwrite as soon as the result is available.
torch::Tensor usable_rows(const torch::Tensor& rows, const RowsUse& use);

/// The factors that turn the micro-batches' loss sums into the step's loss and its gradients.
struct LossFactors {
  double total_weight = 0;       // over all replicas and micro-batches
  std::vector<double> gradient;  // by micro-batch of one replica: the factor of its loss sum before the backward pass
  std::vector<double> reported;  // by micro-batch of one replica: the reported loss is the sum of factor * loss sum
};

/// The whole batch's targets and their sample dimensions.
struct WholeTargets {
  const Tensors& tensors;
  const BatchAxes& axes;
};
/// The factors for one replica, computed from the targets alone. A micro-batch of weight 0 (all masked) has factor 0,
/// and averages do not count a replica of weight 0.
LossFactors loss_factors(const Loss& loss, const LossReduction& how, const WholeTargets& targets,
                         const BatchLayout& layout, Replica replica, int replicas);

}  // namespace penstock
