// All that is decided before a training begins, as files to look at.
#pragma once

#include <string>

#include "penstock/runtime/pipeline.h"

namespace penstock {

/// The network in a line for each node: name, what it is, its stage and rank, what it takes.
std::string graph_text(const Pipeline& pipeline);

/// How many numbers each rank holds: a line for each, and their sum. `state` is that of Pipeline::state().
std::string parameters_text(const Pipeline& pipeline, const std::map<std::string, torch::Tensor>& state);

/// Makes `directory` where it is not there. Throws ConfigError where files cannot be written there.
void require_dump_place(const std::string& directory);

/// Writes into `directory`, which is made where it is not there: graph.txt, stages.txt (what each stage runs, takes and
/// hands on), schedule.sched and schedule.svg (as it is obeyed). Throws ConfigError where that cannot be.
void dump(const Pipeline& pipeline, const std::string& directory);

}  // namespace penstock
