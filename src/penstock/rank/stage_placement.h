// The ranks that hold the stages of one pipeline, as one of these ranks sees them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/transport/transport.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// A plain value. Used on its rank's thread.
class StagePlacement {
 public:
  /// `rank_of_stage` is that of the pipeline's schedules; `pipeline` is part of message tags.
  StagePlacement(std::uint32_t pipeline, RankContext context, std::vector<Rank> rank_of_stage)
      : pipeline_(pipeline), context_(std::move(context)), rank_of_stage_(std::move(rank_of_stage)) {}

  std::uint32_t pipeline() const { return pipeline_; }
  const RankContext& context() const { return context_; }
  Transport& endpoint() const { return *context_.endpoint; }
  /// This rank.
  Rank rank() const { return context_.pipeline_rank(); }
  Replica replica() const { return context_.replica(); }

  int stage_count() const { return static_cast<int>(rank_of_stage_.size()); }
  StageId last_stage() const { return StageId(stage_count() - 1); }
  /// Whether this rank holds `stage`.
  bool is_local(StageId stage) const { return rank_of_stage_[stage.index()] == rank(); }
  /// The rank that holds `stage` of a replica; without one, of this rank's replica.
  WorldRank holder_of(StageId stage, Replica replica) const {
    return context_.rank_of(rank_of_stage_[stage.index()], replica);
  }
  WorldRank holder_of(StageId stage) const { return holder_of(stage, replica()); }

 private:
  std::uint32_t pipeline_;
  RankContext context_;
  std::vector<Rank> rank_of_stage_;
};

}  // namespace penstock
