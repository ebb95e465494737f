#include "penstock/rank/batch_layout.h"

#include <algorithm>

#include "penstock/base/device_copy.h"
#include "penstock/base/error.h"
#include "penstock/base/log.h"

namespace penstock {

RowRange BatchLayout::share(Replica replica) const {
  return split(shape_.samples, {.index = replica.value(), .of = shape_.replicas});
}

int BatchLayout::micro_batches(Replica replica) const {
  return static_cast<int>(std::min<std::int64_t>(shape_.micro_batches, share(replica).size()));
}

RowRange BatchLayout::rows(Replica replica, MicroBatch micro_batch) const {
  const RowRange share_rows = share(replica);
  const RowRange part = split(share_rows.size(), {.index = micro_batch.value(), .of = micro_batches(replica)});
  return {share_rows.begin + part.begin, share_rows.begin + part.end};
}

void warn_of_few_samples(const BatchLayout& layout) {
  const auto& [samples, replicas, micro_batches] = layout.shape();
  const std::int64_t full = std::int64_t{micro_batches} * replicas;
  if (samples > full - replicas) return;  // enough for the replica with the largest share
  warn(say("a batch of ", samples, " samples has fewer than 1 for each of ", micro_batches, " micro-batches on each ",
           "of ", replicas, replicas == 1 ? " replica" : " replicas", ": the step runs with fewer micro-batches; pass ",
           full, " samples or more, or ask for fewer"));
}

torch::Tensor usable_rows(const torch::Tensor& rows, const RowsUse& use) {
  if (!rows.defined()) return rows;
  const torch::Tensor there = to_device(rows, use.device);
  return use.outlive_result && there.is_same(rows) ? there.clone() : there;
}

LossFactors loss_factors(const Loss& loss, const LossReduction& how, const WholeTargets& targets,
                         const BatchLayout& layout, Replica replica, int replicas) {
  LossFactors factors;
  std::vector<double> weights;  // of this replica
  int counted_replicas = 0;
  for (int r = 0; r < replicas; ++r) {
    double replica_weight = 0;
    for (int i = 0; i < layout.micro_batches(Replica(r)); ++i) {
      const RowRange rows = layout.rows(Replica(r), MicroBatch(i));
      const double weight =
          loss.weight ? loss.weight(targets.axes.rows(targets.tensors, rows)) : static_cast<double>(rows.size());
      replica_weight += weight;
      factors.total_weight += weight;
      if (Replica(r) == replica) weights.push_back(weight);
    }
    if (replica_weight > 0) ++counted_replicas;
  }
  // The average over the replicas: weighted by samples for `mean`, or the mean of each replica's sum of means for
  // `sum`.
  const auto averaged = [&](Reduction reduction, double weight) {
    if (weight <= 0) return 0.0;
    return 1 / (reduction == Reduction::mean ? factors.total_weight : weight * counted_replicas);
  };
  const double replica_factor = how.replica_reduction == Reduction::sum ? counted_replicas : 1;
  for (const double weight : weights) {
    factors.gradient.push_back(averaged(how.reduction, weight) * replica_factor);
    factors.reported.push_back(how.reported_loss ? averaged(*how.reported_loss, weight) : factors.gradient.back());
  }
  return factors;
}

}  // namespace penstock
