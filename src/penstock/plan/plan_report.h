// Reports for people: the planner's candidates, and the reasons for its choice.
#pragma once

#include <cstddef>
#include <string>

#include "penstock/plan/planner.h"

namespace penstock {

/// A table with a line per candidate, the shortest step first:
///
///   schedule  v   m       W  partition  makespan  bubble   memory  result
///      gpipe  1  16  stream       time     1.234  15.8 %  3.20 GB  chosen
///
/// It has at most `most_rows` candidates; 0: all. A "~" marks partitions whose search was incomplete.
std::string to_table(const Planned& planned, std::size_t most_rows = 0);

/// "'1f1b' (v = 1, m = 8, weight gradients fused)".
std::string describe(const Candidate& candidate);

/// One paragraph: the chosen candidate; the best candidate with another schedule, or the measured steps of the
/// finalists; idle time and memory.
std::string explanation(const Planned& planned);

}  // namespace penstock
