// The parameters and buffers of a pipeline, and what is left of them after its world has failed.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "penstock/runtime/rank_runner.h"
#include "penstock/world/gather.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// What this rank has to say of the whole state: parameters and buffers owned here, of replica 0.
std::vector<std::pair<std::string, torch::Tensor>> state_of(const RankContext& context, const RankRunner& runner);

/// One rank's context of a fresh world (World::rescued_members) and its runner, at rest.
struct Rescued {
  RankContext context;
  const RankRunner* runner = nullptr;
};

/// The parameters of the last complete step, on the process of rank 0; the others get nothing. Throws RankFailure there
/// when a failure came between the updates of two stages, so that no complete set of one step is left: `failure` is
/// named as its cause. Called once in every process, with all of its ranks.
std::map<std::string, torch::Tensor> recovered_state(const std::vector<Rescued>& ranks, const GatherTag& tag,
                                                     const std::string& failure);

}  // namespace penstock
