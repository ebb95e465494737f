#include "penstock/schedule/updates_last.h"

#include <algorithm>

namespace penstock {

Schedule updates_last(Schedule schedule) {
  for (Order& order : schedule.orders)
    std::stable_partition(order.begin(), order.end(), [](const Instruction& i) { return !is_step_wide(i.op()); });
  return schedule;
}

}  // namespace penstock
