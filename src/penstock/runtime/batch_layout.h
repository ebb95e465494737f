// Which rows of a batch each replica and micro-batch computes, and what they weigh.
#pragma once

#include <vector>

#include "penstock/base/ids.h"
#include "penstock/base/split.h"
#include "penstock/model/loss.h"
#include "penstock/runtime/batch_axes.h"

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
  /// A replica's rows of the batch: contiguous, larger shares first.
  RowRange share(Replica replica) const;
  /// min(m, samples of the share).
  int micro_batches(Replica replica) const;
  /// A micro-batch's rows of the whole batch.
  RowRange rows(Replica replica, MicroBatch micro_batch) const;

 private:
  Shape shape_;
};

/// What turns the micro-batches' loss sums into the step's loss, and its gradient: from the targets alone.
struct LossScale {
  double total_weight = 0;     // over all replicas and micro-batches
  std::vector<double> factor;  // by micro-batch of one replica: the step's loss is the sum of factor * loss sum
};

/// The whole batch's targets, and where the samples lie in them.
struct WholeTargets {
  const Tensors& tensors;
  const BatchAxes& axes;
};
/// A micro-batch without weight (all masked) counts nothing.
LossScale loss_scale(const Loss& loss, Reduction reduction, const WholeTargets& targets, const BatchLayout& layout,
                     Replica replica, int replicas);

}  // namespace penstock
