#include "penstock/schedule/generators/placement.h"

#include <algorithm>

namespace penstock {

Schedule placed_round_robin(const ScheduleShape& shape) {
  Schedule schedule{.name = {}, .micro_batches = shape.micro_batches, .rank_of_stage = {}, .orders = {}};
  for (int stage = 0; stage < shape.ranks * shape.chunks; ++stage)
    schedule.rank_of_stage.push_back(Rank(stage % shape.ranks));
  schedule.orders.resize(static_cast<std::size_t>(shape.ranks));
  return schedule;
}

Schedule placed_in_zigzag(const ScheduleShape& shape) {
  Schedule schedule = placed_round_robin(shape);
  for (int stage = shape.ranks; stage < schedule.stage_count(); ++stage)
    if (stage / shape.ranks % 2 == 1)
      schedule.rank_of_stage[static_cast<std::size_t>(stage)] = Rank(shape.ranks - 1 - stage % shape.ranks);
  return schedule;
}

std::vector<int> for_every_rank(const ScheduleShape& shape, int bound) {
  return std::vector<int>(static_cast<std::size_t>(shape.ranks), bound);
}

std::vector<int> hold_depth(const ScheduleShape& shape, const Tuning&) {
  std::vector<int> bound;
  for (int rank = 0; rank < shape.ranks; ++rank) bound.push_back(std::min(shape.micro_batches, shape.ranks - rank));
  return bound;
}

double fill_and_drain(const ScheduleShape& shape, const StageCosts& costs) {
  return (shape.ranks - 1) * (costs.forward.front() + costs.input_grad.front() + costs.weight_grad.front());
}

Order alternating_order(StageId stage, MicroBatch micro_batches, Drift drift) {
  Order order;
  order.reserve(3 * micro_batches.index());
  MicroBatch f(0);
  MicroBatch w(0);
  for (; f < micro_batches && f.value() < drift.warm_up; f = f.next()) order.push_back(forward(stage, f));
  for (MicroBatch i(0); i < micro_batches; i = i.next()) {
    order.push_back(input_grad(stage, i));
    if (i.value() >= drift.lag) {
      order.push_back(weight_grad(stage, w));
      w = w.next();
    }
    if (f < micro_batches) {
      order.push_back(forward(stage, f));
      f = f.next();
    }
  }
  for (; w < micro_batches; w = w.next()) order.push_back(weight_grad(stage, w));
  return order;
}

}  // namespace penstock
