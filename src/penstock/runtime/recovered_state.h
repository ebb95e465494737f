// Collects the parameters and buffers of a pipeline, also after its world has failed.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "penstock/runtime/rank_runner.h"
#include "penstock/world/gather.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// This rank's contribution to the whole state: the parameters and buffers whose owner it is; none on replicas but 0.
std::vector<std::pair<std::string, torch::Tensor>> state_of(const RankContext& context, const RankRunner& runner);

/// One rank's context in a fresh world (World::contexts_after_failure) and its runner, which executes nothing.
struct RecoveryRank {
  RankContext context;
  const RankRunner* runner = nullptr;
};

/// The state after the last step that all ranks have completed, on the process of rank 0; empty on the others. Throws
/// RankFailure there, with `failure` as the cause, when some stage has changed its parameters since then, wholly or in
/// part, and did not keep the earlier ones (PipelineOptions::keep_last_step). Called once in every process, with all of
/// its ranks.
std::map<std::string, torch::Tensor> recovered_state(const std::vector<RecoveryRank>& ranks, const Tag& tag,
                                                     const std::string& failure);

}  // namespace penstock
