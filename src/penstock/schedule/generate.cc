#include "penstock/schedule/generate.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "penstock/base/error.h"
#include "penstock/schedule/placement.h"

namespace penstock {
namespace {

/// p * v * m beyond this would not fit into the memory of a common machine.
constexpr std::int64_t max_cells = std::int64_t{1} << 26;

std::vector<int> for_every_rank(const ScheduleShape& shape, int bound) {
  return std::vector<int>(static_cast<std::size_t>(shape.ranks), bound);
}
std::vector<int> hold_one(const ScheduleShape& shape) { return for_every_rank(shape, 1); }
std::vector<int> hold_all(const ScheduleShape& shape) { return for_every_rank(shape, shape.micro_batches); }
std::vector<int> hold_depth(const ScheduleShape& shape) {
  std::vector<int> bound;
  for (int rank = 0; rank < shape.ranks; ++rank) bound.push_back(std::min(shape.micro_batches, shape.ranks - rank));
  return bound;
}

constexpr std::array table{
    Generator{"sequential", "one rank works at a time: the naive baseline", sequential, hold_one},
    Generator{"gpipe", "all forwards, then all backwards (Huang et al., arXiv 1811.06965)", gpipe, hold_all},
    Generator{"1f1b", "one forward, one backward (PipeDream-Flush; Narayanan et al., arXiv 2006.09503)", one_f_one_b,
              hold_depth},
    Generator{"forward-only", "inference and evaluation: no backward", forward_only, hold_one},
};

/// What to ask for instead, for a generator that knows one stage per rank.
std::string_view advice(std::string_view name) {
  if (name == "gpipe") return "; with more it would be the looped schedule 'looped-bfs'";
  if (name == "1f1b") return "; with more it would be the schedule 'interleaved'";
  return "";
}

void check_shape(const Generator& generator, const ScheduleShape& shape) {
  require<ConfigError>(shape.ranks >= 1, "a schedule for ", shape.ranks, " ranks: at least 1 is needed");
  require<ConfigError>(shape.micro_batches >= 1, "a schedule for ", shape.micro_batches,
                       " micro-batches: at least 1 is needed");
  require<ConfigError>(shape.chunks >= 1, "a schedule with ", shape.chunks, " chunks per rank: at least 1 is needed");
  require<ConfigError>(shape.chunks <= generator.max_chunks, "schedule '", generator.name, "' takes at most ",
                       generator.max_chunks, " chunk(s) per rank, not ", shape.chunks, advice(generator.name));
  const std::int64_t stages = std::int64_t{shape.ranks} * shape.chunks;
  require<ConfigError>(stages <= max_stages, shape.ranks, " ranks x ", shape.chunks, " chunks are ", stages,
                       " stages: at most ", max_stages, " are possible");
  require<ConfigError>(stages * shape.micro_batches <= max_cells, stages, " stages x ", shape.micro_batches,
                       " micro-batches: at most ", max_cells, " in all are possible");
}

}  // namespace

std::span<const Generator> generators() { return table; }

const Generator& find_generator(std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Generator& generator) { return generator.name == name; });
  if (found != table.end()) return *found;
  std::string known;
  for (const Generator& generator : table) known += (known.empty() ? "" : ", ") + std::string(generator.name);
  throw ConfigError(say("no schedule is called '", name, "': there are ", known));
}

Schedule generate(std::string_view name, const ScheduleShape& shape) {
  const Generator& generator = find_generator(name);
  check_shape(generator, shape);
  return generator.generate(shape);
}

Schedule placed_in_turns(std::string name, const ScheduleShape& shape) {
  Schedule schedule{std::move(name), shape.micro_batches, {}, {}};
  for (int stage = 0; stage < shape.ranks * shape.chunks; ++stage)
    schedule.rank_of_stage.push_back(Rank(stage % shape.ranks));
  schedule.orders.resize(static_cast<std::size_t>(shape.ranks));
  return schedule;
}

}  // namespace penstock
