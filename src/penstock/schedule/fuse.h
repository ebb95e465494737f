// Fewer, larger weight gradients: one pass over several micro-batches in place of one pass for each. The cost is the
// memory of the contexts that wait for it.
#pragma once

#include <optional>
#include <vector>

#include "penstock/schedule/order.h"

namespace penstock {

struct FuseOptions {
  /// Micro-batches per W: 0..group-1, group..2*group-1 and so on, the last group what is left; 0: the whole step.
  int group = 0;
  /// Most live micro-batch contexts per rank (a chunk counts 1). Groups then become as large as they may, one by one.
  /// Not together with `group`.
  std::optional<std::vector<int>> activation_limit = {};
};

/// AlternatingOrder every B into I, and the W's of each stage into fused W's: groups of consecutive micro-batches, ascending. A
/// group of one is a plain W. F and I keep their order, B's place in an overlap pair becomes I's. Works alike for
/// schedules that split B already; a forward-only schedule stays as it is.
///
/// generate("1f1b", {.ranks = 2, .micro_batches = 4}), and below it fused over the whole step:
///
///   rank 0 | 0F0 0F1  .  0B0 0F2 0B1 0F3 0B2  .  0B3
///   rank 1 |  .  1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3  .
///
///   rank 0 |  0F0   0F1    .    0I0   0F2   0I1   0F3   0I2    .    0I3  0W0-3
///   rank 1 |   .    1F0   1I0   1F1   1I1   1F2   1I2   1F3   1I3  1W0-3   .
///
/// Where a fused W stands:
///   the whole step       at the end of the rank's list, where nobody waits for what comes behind it; of several stages
///                        the one whose last I comes first goes first
///   groups               where the W or B of the group's last micro-batch stood
///   an activation limit  right before the F that would exceed it, for the stage with the most W's to do, all of them
///                        in one; what is left at the end as for the whole step
/// No other rank waits for a W, so a fused schedule deadlocks only if the original does. What it costs is for
/// simulate() to tell.
///
/// Throws ScheduleError for a lowered schedule (lower what fuse_w gives), for an incomplete or disordered one, and for a
/// limit that even single W's, each right behind its I, would exceed; the message says which limits would do. Throws
/// ConfigError for a negative group, a group together with a limit, and a limit for another number of ranks.
Schedule fuse_w(const Schedule& schedule, const FuseOptions& options = {});

/// The smallest activation limit, per rank, that fuse_w accepts for `schedule`.
std::vector<int> smallest_fuse_limit(const Schedule& schedule);

/// Whether any W of `schedule` covers several micro-batches.
bool has_fused_w(const Schedule& schedule);

}  // namespace penstock
