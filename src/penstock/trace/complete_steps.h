// The steps that a trace can be validated by: obeyed to the end by every rank. Inside this module only.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/trace/recorder.h"

namespace penstock {

/// One step as all ranks saw it. Points into the trace, which must outlive it.
struct WorldStep {
  std::uint64_t step = 0;
  std::vector<const RankStep*> ranks;  // by world rank
  std::int64_t begin_ns = 0;           // earliest begin of a compute instruction anywhere
  std::int64_t end_ns = 0;             // latest end of a compute or update instruction anywhere

  std::int64_t makespan_ns() const { return end_ns - begin_ns; }
};

/// The pipeline rank that world rank `rank` runs.
inline Rank pipeline_rank(const Trace& trace, std::size_t rank) {
  return Rank(static_cast<std::int32_t>(rank) / trace.replicas);
}

/// The stages of a rank, ascending.
std::vector<StageId> stages_of(const Schedule& schedule, Rank rank);

/// Only there are compute and update instructions: what a rank is busy with.
inline bool is_busy(const Span& span) {
  return span.activity == Activity::compute || span.activity == Activity::update;
}

/// Oldest first: the steps in which every rank ran exactly the compute instructions of the trace's schedule. Steps with fewer
/// micro-batches and evaluation passes are not among them, nor is the first one (it warms caches) if there are more.
/// Throws DataError when that leaves none.
std::vector<WorldStep> complete_steps(const Trace& trace);

/// The step of median makespan; of an even number, the faster one of the middle two.
WorldStep median_step(const Trace& trace);

}  // namespace penstock
