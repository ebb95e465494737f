#include "penstock/schedule/memory_limit.h"

#include <algorithm>
#include <cmath>

#include "penstock/base/error.h"

namespace penstock {
namespace {

std::vector<int> chunks_of(const Schedule& schedule) {
  std::vector<int> chunks(schedule.orders.size(), 0);
  for (const Rank rank : schedule.rank_of_stage)
    if (rank.index() < chunks.size()) ++chunks[rank.index()];
  return chunks;
}

int of_1f1b(const Schedule& schedule) { return std::min(schedule.micro_batches, schedule.rank_count()); }

/// The rank that needs the largest limit.
struct FullestRank {
  std::size_t rank = 0;
  double limit = 0;
};

FullestRank fullest_rank(const Schedule& schedule, const std::vector<int>& held) {
  const std::vector<int> chunks = chunks_of(schedule);
  FullestRank fullest;
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    const double units = static_cast<double>(held[rank]) / (std::max(1, chunks[rank]) * of_1f1b(schedule));
    if (units > fullest.limit) fullest = {rank, units};
  }
  return fullest;
}

}  // namespace

void require_memory_limit(double memory_limit) {
  require<ConfigError>(std::isfinite(memory_limit) && memory_limit > 0, "memory limit ", memory_limit,
                       ": it is a positive multiple of 1F1B's activations");
}

std::vector<int> activation_limit(const Schedule& schedule, double memory_limit) {
  require_memory_limit(memory_limit);
  // A limit of 1.1 times 10 micro-batches permits 11, although the product may be rounded to slightly less.
  constexpr double rounding = 1e-9;
  std::vector<int> limit;
  for (const int chunks : chunks_of(schedule)) {
    const double contexts = memory_limit * chunks * of_1f1b(schedule) + rounding;
    const double all = static_cast<double>(schedule.micro_batches) * chunks;
    limit.push_back(std::max(1, static_cast<int>(std::min(contexts, all))));
  }
  return limit;
}

bool is_within_limit(const Schedule& schedule, double memory_limit, const std::vector<int>& held) {
  const std::size_t fullest = fullest_rank(schedule, held).rank;
  return held.empty() || held[fullest] <= activation_limit(schedule, memory_limit)[fullest];
}

double needed_memory_limit(const Schedule& schedule, const std::vector<int>& held) {
  constexpr double digits = 1000;
  return std::ceil(fullest_rank(schedule, held).limit * digits - 1e-6) / digits;
}

void require_within_limit(const Schedule& schedule, double memory_limit, const std::vector<int>& held) {
  if (is_within_limit(schedule, memory_limit, held)) return;
  const std::size_t fullest = fullest_rank(schedule, held).rank;
  throw ConfigError(say("a memory limit of ", memory_limit, " (times 1F1B's ", of_1f1b(schedule),
                        " micro-batches) lets rank ", fullest, " hold ",
                        activation_limit(schedule, memory_limit)[fullest], " live micro-batches",
                        chunks_of(schedule)[fullest] > 1 ? " of its chunks" : "", ", but schedule '", schedule.name,
                        "' holds ", held[fullest], " there: give a limit of ", needed_memory_limit(schedule, held),
                        " or more, or take another schedule"));
}

}  // namespace penstock
