// What the planner tried and why it took what it took, for people.
#pragma once

#include <cstddef>
#include <string>

#include "penstock/plan/planner.h"

namespace penstock {

/// A line per candidate, the shortest step first:
///
///   schedule  v   m       W   partition  makespan  bubble  memory    verdict
///      gpipe  1  16  stream  time     1.234  15.8 %  3.2 GB     chosen
///
/// With at most `most_rows` of them; 0: all. Partitions whose search was given up bear a "~".
std::string to_table(const Planned& planned, std::size_t most_rows = 0);

/// One paragraph: what was chosen, how far it is ahead, where its time and memory go.
std::string explanation(const Planned& planned);

}  // namespace penstock
