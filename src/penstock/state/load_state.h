// Compares a stored state with the parameters and buffers of all ranks, and copies it into them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "penstock/rank/stage.h"
#include "penstock/world/gather.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// A tensor of a stored state without its values.
struct TensorForm {
  std::string dtype;  // as c10 names it: "float"
  std::vector<std::int64_t> shape = {};
};

struct StateForm {
  std::string what = "state";  // in messages: "state", "checkpoint"
  std::map<std::string, TensorForm> tensors = {};
};

/// Called on every rank's thread with the same `stored`. Returns the first three differences between names, shapes and
/// dtypes of all ranks' parameters and buffers and those of `stored`, the same text on every rank; empty where all fit.
std::string misfit(const RankContext& context, const Tag& tag, const RankStages& stages, const StateForm& stored);

/// Called on every rank's thread with the same `state`. Copies the values of `state` where all fit; returns misfit().
std::string load_values(const RankContext& context, const Tag& tag, const RankStages& stages,
                        const std::map<std::string, torch::Tensor>& state);

}  // namespace penstock
