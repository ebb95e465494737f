// Reads measured steps from a table (CSV), for fit_terms().
#pragma once

#include <string_view>
#include <vector>

#include "penstock/plan/fit_terms.h"
#include "penstock/plan/layer_costs.h"

namespace penstock {

/// Reads a table such as
///
///   schedule,ranks,micro_batches,measured
///   1f1b,4,16,452.5
///   zb-h1,4,16,410.6
///
/// with the columns in any order. `measured` is the time of a step in LayerCosts::time_unit. Optional columns, whose
/// cells may be empty: `chunks` (stages per rank), `partition` (the first layer of each stage but the first, separated
/// by semicolons; without it the planner's choice) and `weight_gradients` (stream, the default, or fused). Empty lines,
/// and lines that begin with '#', are skipped. The schedules are those that generators make for the costs, without
/// memory limits. Throws DataError, which names the line, for any deviation; an unknown column or schedule gets a
/// suggestion.
std::vector<MeasuredStep> read_measured_runs(std::string_view text, const LayerCosts& costs);

}  // namespace penstock
