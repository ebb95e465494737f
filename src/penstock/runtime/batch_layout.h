// Which rows of a batch each replica and micro-batch computes, and what they weigh.
#pragma once

#include <optional>
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

/// Warns where the largest share of a replica has fewer samples than there are micro-batches. Meant for the first
/// batch: a short one behind full ones is the end of an epoch.
void warn_of_few_samples(const BatchLayout& layout);

/// What is done with rows of a batch.
struct RowsUse {
  c10::Device device = c10::kCPU;  // where they are wanted
  bool outlive_result = false;     // they are read after the step's result is known: by a backward pass
};

/// `rows` of the caller's batch on the device. Where they outlive the result they share no memory with the batch, which
/// its owner may write to as soon as the result is known.
torch::Tensor usable_rows(const torch::Tensor& rows, const RowsUse& use);

/// How loss sums come together, over the micro-batches and then over the replicas.
struct LossReductions {
  Reduction micro_batches = Reduction::mean;  // of the loss whose gradients are applied
  Reduction replicas = Reduction::mean;       // of the same
  /// Of the loss that is reported, which is averaged over the replicas; none: the loss above.
  std::optional<Reduction> reported = {};
};

/// What turns the micro-batches' loss sums into the step's loss and its gradients: from the targets alone.
struct LossFactors {
  double total_weight = 0;       // over all replicas and micro-batches
  std::vector<double> gradient;  // by micro-batch of one replica: what the gradient of its loss sum is multiplied with
  std::vector<double> reported;  // by micro-batch of one replica: the reported loss is the sum of factor * loss sum
};

/// The whole batch's targets, and where the samples lie in them.
struct WholeTargets {
  const Tensors& tensors;
  const BatchAxes& axes;
};
/// A micro-batch without weight (all masked) counts nothing, and a replica without any does not count among those that
/// are averaged over.
LossFactors loss_factors(const Loss& loss, const LossReductions& reductions, const WholeTargets& targets,
                         const BatchLayout& layout, Replica replica, int replicas);

}  // namespace penstock
