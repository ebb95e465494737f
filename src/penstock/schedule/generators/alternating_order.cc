#include "penstock/schedule/generators/alternating_order.h"

#include "penstock/schedule/generators/placement.h"

namespace penstock {

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
