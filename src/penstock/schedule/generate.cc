#include "penstock/schedule/generate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/schedule/memory_limit.h"

namespace penstock {

// A file generators/generate_FAMILY.cc defines and describes each.
extern const ScheduleGenerator sequential_generator, gpipe_generator, one_f_one_b_generator,
    early_one_f_one_b_generator, interleaved_generator, looped_bfs_generator, zb_h1_generator, zb_h2_generator,
    zb_auto_generator, zb_v_generator, v_half_generator, v_min_generator, dualpipe_v_generator, hanayo_generator,
    chimera_generator, forward_only_generator;

namespace {

/// The upper bound of p * v * m: larger schedules would not fit into the memory of a common machine.
constexpr std::int64_t max_cells = std::int64_t{1} << 26;

/// The schedule to use instead when a generator does not accept the number of chunks.
std::string_view advice(std::string_view name) {
  if (name == "gpipe") return "; with more it would be the looped schedule 'looped-bfs'";
  if (name == "1f1b") return "; with more it would be the schedule 'interleaved'";
  if (name == "interleaved") return "; with 1 it would be the schedule '1f1b'";
  if (name == "looped-bfs") return "; with 1 it would be the schedule 'gpipe'";
  return "";
}

void check_shape(const ScheduleGenerator& generator, const ScheduleShape& shape) {
  require<ConfigError>(shape.ranks >= 1, "a schedule for ", shape.ranks, " ranks: at least 1 is needed");
  require<ConfigError>(shape.micro_batches >= 1, "a schedule for ", shape.micro_batches,
                       " micro-batches: at least 1 is needed");
  require<ConfigError>(shape.chunks >= 1, "a schedule with ", shape.chunks, " chunks per rank: at least 1 is needed");
  const bool is_exact = generator.min_chunks == generator.max_chunks;
  require<ConfigError>(shape.chunks <= generator.max_chunks, "schedule '", generator.name, "' takes ",
                       is_exact ? "exactly " : "at most ", counted(generator.max_chunks, "chunk"), " per rank, not ",
                       shape.chunks, advice(generator.name));
  require<ConfigError>(shape.chunks >= generator.min_chunks, "schedule '", generator.name, "' takes ",
                       is_exact ? "exactly " : "at least ", counted(generator.min_chunks, "chunk"), " per rank, not ",
                       shape.chunks, advice(generator.name));
  const std::int64_t stages = std::int64_t{shape.ranks} * shape.chunks;
  require<ConfigError>(stages <= max_stages, shape.ranks, " ranks x ", shape.chunks, " chunks are ", stages,
                       " stages: at most ", max_stages, " are possible");
  require<ConfigError>(stages * shape.micro_batches <= max_cells, stages, " stages x ", shape.micro_batches,
                       " micro-batches: at most ", max_cells, " in all are possible");
}

/// `name` without what other programs and papers write differently: "ZB-H1", "zb_h1" and "zbh1" are one name.
std::string plain(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (c != '-' && c != '_') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

/// Names of torch.distributed.pipelining that are not such a form of ours.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> names_of_torch{
    {{"interleaved1f1b", "interleaved"}, {"zbvzerobubble", "zb-v"}}};

}  // namespace

std::span<const ScheduleGenerator> generators() {
  static const std::array table{
      sequential_generator,  gpipe_generator,      one_f_one_b_generator, early_one_f_one_b_generator,
      interleaved_generator, looped_bfs_generator, zb_h1_generator,       zb_h2_generator,
      zb_auto_generator,     zb_v_generator,       v_half_generator,      v_min_generator,
      dualpipe_v_generator,  hanayo_generator,     chimera_generator,     forward_only_generator};
  return table;
}

const ScheduleGenerator* known_generator(std::string_view name) {
  const auto table = generators();
  const std::string wanted = plain(name);
  for (const auto& [of_torch, ours] : names_of_torch)
    if (wanted == of_torch) return known_generator(ours);
  const auto found = std::ranges::find(table, wanted, [](const ScheduleGenerator& one) { return plain(one.name); });
  return found == table.end() ? nullptr : &*found;
}

bool is_schedule_file(const std::string& source) {
  if (known_generator(source)) return false;
  std::error_code ignored;  // a path that cannot be examined is not there
  return source == "-" || source.find_first_of("/.") != std::string::npos || std::filesystem::exists(source, ignored);
}

const ScheduleGenerator& find_generator(std::string_view name) {
  if (const ScheduleGenerator* known = known_generator(name)) return *known;
  std::vector<std::string> names;
  for (const ScheduleGenerator& generator : generators()) names.emplace_back(generator.name);
  throw ConfigError(
      say("no schedule is called '", name, "': did you mean '", nearest(name, names), "'? There are ", listed(names)));
}

bool trains(const ScheduleGenerator& generator) {
  return generator.single_owner && !generate(generator.name, {.chunks = generator.default_chunks}).is_forward_only();
}

Schedule generate(std::string_view name, const ScheduleShape& shape, const Tuning& tuning) {
  const ScheduleGenerator& generator = find_generator(name);
  check_shape(generator, shape);
  require_memory_limit(tuning.memory_limit, tuning.costs);
  require_costs_fit(tuning.costs, shape.ranks * shape.chunks);
  Schedule schedule = generator.generate(shape, tuning);
  schedule.name = generator.name;
  return schedule;
}

std::string_view default_schedule(int chunks) { return chunks > 1 ? "interleaved" : "1f1b"; }

}  // namespace penstock
