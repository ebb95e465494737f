// What each rank of a pipeline will hold in memory, before it is made, and what this host can give.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/rank/options.h"

namespace penstock::cli {

/// How a pipeline trains its parameters.
struct Training {
  int ranks = 1;             // of the pipeline, without replicas
  bool has_updates = false;  // otherwise it runs forward only
  int optimizer_values = 0;  // numbers that the optimiser keeps for each parameter
  int state_sharers = 1;     // replicas that share them
  /// Whether the parameter `name` trains, if it does or does not by itself; null: as it does by itself.
  std::function<bool(const std::string& name, bool by_itself)> trains = nullptr;
};

/// The bytes of weights, gradients and optimiser state that each rank holds; without activations. Builds every layer
/// once, without reading its weights. Throws as Pipeline's constructor for a network that cannot be partitioned.
std::vector<std::int64_t> bytes_of_ranks(Cell& network, const PipelineOptions& options, const Training& training);

/// The bytes that this host has for new memory: what the kernel counts as available, or less if a control group of this
/// process has a lower limit. None if neither can be read.
std::optional<std::int64_t> available_memory();

/// One line for people: the need of each rank, and whether the `ranks_here` largest of them fit into `available`.
std::string need_text(const std::vector<std::int64_t>& bytes, std::size_t ranks_here,
                      std::optional<std::int64_t> available);

}  // namespace penstock::cli
