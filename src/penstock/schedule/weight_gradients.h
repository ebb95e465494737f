// The mode of weight gradients: how W accumulates over the micro-batches of a step. Schedules, plans, options and the
// command line have it in common.
#pragma once

#include <optional>
#include <string_view>

#include "penstock/schedule/order.h"

namespace penstock {

/// The last bits of results depend on how many micro-batches enter one matrix product.
enum class WeightGradients {
  stream,     // one W per micro-batch, or as a part of B
  automatic,  // stream or fused, whichever is faster: the schedule "auto" and the planner decide
  fused,      // one W per stage and step, or as few as a memory limit permits
  grouped     // few W's per stage, as large as the memory cap permits: the planner's substitute for fused
};

/// "stream", "auto", "fused" or "grouped": the name in plan files, in reports and on command lines.
const char* to_string(WeightGradients mode);

/// The mode with this name; none for any other text.
std::optional<WeightGradients> weight_gradients_named(std::string_view name);

/// The mode of a schedule's W's: stream if none covers several micro-batches, fused if each covers the whole step, and
/// grouped otherwise.
WeightGradients weight_gradients_of(const Schedule& schedule);

}  // namespace penstock
