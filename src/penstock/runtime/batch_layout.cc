#include "penstock/runtime/batch_layout.h"

#include <algorithm>

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

LossScale loss_scale(const Loss& loss, Reduction reduction, const WholeTargets& targets, const BatchLayout& layout,
                     Replica replica, int replicas) {
  LossScale scale;
  std::vector<double> weights;  // of this replica
  for (int r = 0; r < replicas; ++r)
    for (int i = 0; i < layout.micro_batches(Replica(r)); ++i) {
      const RowRange rows = layout.rows(Replica(r), MicroBatch(i));
      const double weight = loss.weight ? loss.weight(targets.axes.rows(targets.tensors, rows))
                                        : static_cast<double>(rows.size());
      scale.total_weight += weight;
      if (Replica(r) == replica) weights.push_back(weight);
    }
  for (double weight : weights) {
    const double divisor = reduction == Reduction::mean ? scale.total_weight : weight;
    scale.factor.push_back(weight > 0 ? 1 / divisor : 0);
  }
  return scale;
}

}  // namespace penstock
