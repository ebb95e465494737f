#include "penstock/plan/require_fitting.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

std::string in_gigabytes(double bytes) { return say(fixed(bytes / 1e9, 2), " GB"); }

/// The smallest change with which a candidate fits, or the memory that would do.
std::string change_that_fits(const PlanConstraints& constraints, const std::string& memory, const Replan& plan) {
  constexpr double enough_s = 2;
  for (const auto& [recompute, shards] : {std::pair(true, false), {false, true}, {true, true}}) {
    PlanConstraints with = constraints;
    with.recompute = constraints.recompute || recompute;
    with.shards_optimizer = constraints.shards_optimizer || shards;
    with.time_limit_s = enough_s;
    if (with.recompute == constraints.recompute && with.shards_optimizer == constraints.shards_optimizer) continue;
    try {
      const std::optional<Candidate> fitting = plan(with);
      if (!fitting) return "";
      return say("with ", recompute ? "recompute" : "", recompute && shards ? " and " : "",
                 shards ? "a sharded optimiser" : "", " '", fitting->schedule, "' with p = ", fitting->ranks,
                 ", d = ", fitting->replicas, ", m = ", fitting->micro_batches, " fits");
    } catch (const ScheduleError&) {
      continue;
    }
  }
  return say("use devices with ", memory, ", more of them, or smaller micro-batches");
}

/// Throws the error of a cluster on whose devices no candidate fits.
void require_fitting_devices(const PlanConstraints& constraints, const std::vector<Outcome>& outcomes,
                             const Replan& plan) {
  const Outcome* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  std::size_t rank_of_least = 0;
  for (const Outcome& outcome : outcomes) {
    double most = 0;
    std::size_t fullest = 0;
    const std::vector<double>& bytes = outcome.candidate.prediction.memory_bytes;
    for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
      const double share = bytes[rank] / outcome.setting->site.memory(Rank(static_cast<std::int32_t>(rank)));
      if (share > most) {
        most = share;
        fullest = rank;
      }
    }
    if (most >= least) continue;
    nearest = &outcome;
    least = most;
    rank_of_least = fullest;
  }
  const Rank rank(static_cast<std::int32_t>(rank_of_least));
  const Candidate& candidate = nearest->candidate;
  const std::string needed = in_gigabytes(candidate.prediction.memory_bytes[rank_of_least]);
  throw ScheduleError(say("nothing fits into the memory of the devices: the nearest is '", candidate.schedule,
                          "' with p = ", candidate.ranks, ", d = ", candidate.replicas,
                          ", m = ", candidate.micro_batches, ", which needs ", needed, " on ",
                          constraints.cluster->name_of(nearest->setting->placement[rank_of_least].front()),
                          ", and that has ", in_gigabytes(nearest->setting->site.memory(rank)), ": ",
                          change_that_fits(constraints, needed, plan)));
}

}  // namespace

void require_fitting(const LayerCosts& costs, const PlanConstraints& constraints, const std::vector<Outcome>& outcomes,
                     const Replan& plan) {
  if (outcomes.front().candidate.fits) return;
  if (constraints.cluster && !constraints.memory_limit) require_fitting_devices(constraints, outcomes, plan);
  const auto with = [](const Candidate& candidate) {
    return say("with '", candidate.schedule, "', ", counted(candidate.chunks, "chunk"), " per rank and ",
               candidate.micro_batches, " micro-batches");
  };
  const Candidate& smallest = outcomes.front().candidate;
  const auto cap = costs.memory_cap_bytes;
  require<ScheduleError>(!cap || smallest.prediction.most_bytes() <= *cap, "no schedule fits into ",
                         std::llround(cap.value_or(0)), " bytes per rank: the smallest cap that would do is ",
                         std::llround(smallest.prediction.most_bytes()), " bytes, ", with(smallest));
  const Candidate* least = nullptr;
  for (const Outcome& outcome : outcomes)
    if ((!cap || outcome.candidate.prediction.most_bytes() <= *cap) &&
        (!least || outcome.candidate.needed_limit < least->needed_limit))
      least = &outcome.candidate;
  const MemoryLimit& limit = constraints.memory_limit.value();
  throw ScheduleError(say("no schedule stays within a memory limit of ", readable(limit),
                          is_in_bytes(limit) ? " of activations per rank" : " (times 1F1B's live micro-batches)",
                          ": the smallest limit that would do is ", readable(least->needed_limit.value()), ", ",
                          with(*least)));
}

}  // namespace penstock
