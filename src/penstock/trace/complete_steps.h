// Finds the steps of a trace that all ranks executed completely. Inside this module only.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/trace/recorder.h"

namespace penstock {

/// One step on all ranks. Points into the trace, which must outlive it.
struct WorldStep {
  std::uint64_t step = 0;
  std::vector<const RankStep*> ranks;  // by world rank
  std::int64_t begin_ns = 0;           // earliest begin of a compute instruction anywhere
  std::int64_t end_ns = 0;             // latest end of a compute or update instruction anywhere

  std::int64_t makespan_ns() const { return end_ns - begin_ns; }
};

/// The pipeline rank of the world rank `rank`.
inline Rank pipeline_rank(const Trace& trace, std::size_t rank) {
  return Rank(static_cast<std::int32_t>(rank) / trace.replicas);
}

/// The stages of a rank, ascending.
std::vector<StageId> stages_of(const Schedule& schedule, Rank rank);

/// True if the rank was busy: in a compute or update instruction.
inline bool is_busy(const Span& span) {
  return span.activity == Activity::compute || span.activity == Activity::update;
}

/// The steps in which every rank ran exactly the compute instructions of the trace's schedule, oldest first. This
/// excludes steps with fewer micro-batches and evaluation passes. If there are several steps, the first one is left
/// out, because it warms caches. Throws DataError if there is none.
std::vector<WorldStep> complete_steps(const Trace& trace);

/// The step of median makespan; the faster of the two middle ones if their number is even. Throws like
/// complete_steps().
WorldStep median_step(const Trace& trace);

}  // namespace penstock
