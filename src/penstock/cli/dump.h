// Writes the result of partitioning and scheduling to files (--dump).
#pragma once

#include <string>

#include "penstock/pipeline/pipeline.h"

namespace penstock::cli {

/// The network, one line per node: name, kind, stage and rank, inputs.
std::string graph_text(const Pipeline& pipeline);

/// The number of parameter elements that each rank holds, one line per rank, and their sum. `state` is the result of
/// Pipeline::state_dict().
std::string parameters_text(const Pipeline& pipeline, const StateDict& state);

/// Creates `directory` if it is missing. Throws ConfigError if files cannot be written there.
void require_dump_place(const std::string& directory);

/// Writes graph.txt, stages.txt (nodes, inputs and outputs of each stage), schedule.sched and schedule.svg (as
/// executed) into `directory`, which is created if it is missing. Throws ConfigError if that is impossible.
void dump(const Pipeline& pipeline, const std::string& directory);

}  // namespace penstock::cli
