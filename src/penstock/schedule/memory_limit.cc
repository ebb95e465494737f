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

}  // namespace

std::vector<int> activation_limit(const Schedule& schedule, double memory_limit) {
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

void require_within_limit(const Schedule& schedule, double memory_limit, const std::vector<int>& held) {
  const std::vector<int> allowed = activation_limit(schedule, memory_limit);
  const std::vector<int> chunks = chunks_of(schedule);
  std::size_t worst = 0;
  double needed = 0;
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    const double units = static_cast<double>(held[rank]) / (std::max(1, chunks[rank]) * of_1f1b(schedule));
    if (units <= needed) continue;
    needed = units;
    worst = rank;
  }
  // Rounded up, so that the printed limit is sufficient.
  constexpr double digits = 1000;
  require<ConfigError>(held.empty() || held[worst] <= allowed[worst], "a memory limit of ", memory_limit,
                       " (times 1F1B's ", of_1f1b(schedule), " micro-batches) lets rank ", worst, " hold ",
                       allowed[worst], " live micro-batches", chunks[worst] > 1 ? " of its chunks" : "",
                       ", but schedule '", schedule.name, "' holds ", held[worst], " there: give a limit of ",
                       std::ceil(needed * digits - 1e-6) / digits, " or more, or take another schedule");
}

}  // namespace penstock
