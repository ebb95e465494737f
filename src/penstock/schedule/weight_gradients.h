// How W accumulates over the micro-batches of a step: one W for each, or fused W's. A fused W computes the weight
// gradients of several micro-batches at once: it is faster than the W's that it replaces, but the activations of all
// its micro-batches stay in memory until it has run.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "penstock/schedule/instruction.h"

namespace penstock {

/// The last bits of results depend on how many micro-batches enter one matrix product.
enum class WeightGradients {
  stream,     // one W per micro-batch, or as a part of B
  automatic,  // stream or fused, whichever is faster: the schedule "auto" and the planner decide
  fused,      // one W per stage and step, or as few as a memory limit permits
  grouped     // few W's per stage, as large as the memory cap permits: the planner's substitute for fused
};

/// "stream", "auto", "fused" or "grouped": the name in plan files, in reports and on command lines.
const char* to_string(WeightGradients mode);

/// The mode with this name; none for any other text.
std::optional<WeightGradients> weight_gradients_named(std::string_view name);

/// The mode of a schedule's W's: stream if none covers several micro-batches, fused if each covers the whole step, and
/// grouped otherwise.
WeightGradients weight_gradients_of(const Schedule& schedule);

struct FuseOptions {
  /// Micro-batches per W: the groups are 0..group-1, group..2*group-1 and so on; the last group may be smaller. 0: one
  /// W for the whole step.
  int group = 0;
  /// The upper bound of live micro-batches per rank (a micro-batch counts once for each chunk). Each W then covers as
  /// many micro-batches as the bound permits. Must not be combined with `group`.
  std::optional<std::vector<int>> activation_limit = {};
};

/// Replaces every B by an I and the W's of each stage by fused W's over groups of consecutive micro-batches, in
/// ascending order. A group of one micro-batch is a plain W. F and I keep their order; in an overlap pair, I takes the
/// place of B. `schedule` may already split B. A forward-only schedule is returned unchanged.
///
/// generate("1f1b", {.ranks = 2, .micro_batches = 4}), and the same schedule fused over the whole step:
///
///   rank 0 | 0F0 0F1  .  0B0 0F2 0B1 0F3 0B2  .  0B3
///   rank 1 |  .  1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3  .
///
///   rank 0 |  0F0   0F1    .    0I0   0F2   0I1   0F3   0I2    .    0I3  0W0-3
///   rank 1 |   .    1F0   1I0   1F1   1I1   1F2   1I2   1F3   1I3  1W0-3   .
///
/// The position of a fused W:
///   the whole step       at the end of the rank's list, where it delays nothing; several stages of a rank follow each
///                        other in the order of their last I's
///   groups               at the position of the W or B of the group's last micro-batch
///   an activation limit  right before the F that would exceed the limit: one W over all pending micro-batches of the
///                        stage that has the most of them; the remaining ones at the end, as for the whole step
/// No other rank waits for a W, so a fused schedule deadlocks only if the original does. simulate() computes its time.
///
/// Throws ScheduleError for a lowered schedule (fuse first, then lower), for an incomplete or disordered one, and for a
/// limit that is exceeded even if every W directly follows its I; the message names the smallest limits. Throws
/// ConfigError for a negative group, for a group together with a limit, and for a limit with another number of ranks.
Schedule fuse_w(const Schedule& schedule, const FuseOptions& options = {});

/// The smallest FuseOptions::activation_limit, per rank, that fuse_w accepts for `schedule`. Throws ScheduleError for
/// the schedules that fuse_w refuses.
std::vector<int> smallest_fuse_limit(const Schedule& schedule);

}  // namespace penstock
