// The table of schedule generators. A generator places the stages on ranks and orders the compute instructions of each
// rank; lower() adds the other instructions. Every generator makes a valid schedule for every p >= 1, every m >= 1 and
// every v between its min_chunks and max_chunks.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "penstock/schedule/generator.h"

namespace penstock {

/// The name of the default generator: "1f1b", or "interleaved" for more than one chunk per rank.
std::string_view default_schedule(int chunks);
/// All generators, in the order in which --help lists them. The table lives as long as the program.
std::span<const ScheduleGenerator> generators();
/// The generator called `name`, or null if there is none. Names of torch.distributed.pipelining are known as well
/// ("Interleaved1F1B"), and case, '-' and '_' do not count: "ZB-H1", "zb_h1".
const ScheduleGenerator* known_generator(std::string_view name);
/// Whether `source`, a user's name of a schedule, is the path of a file and not the name of a generator: no
/// generator has this name, and it contains a '/' or '.', is "-" (standard input) or there is such a file.
bool is_schedule_file(const std::string& source);
/// The generator called `name`. Throws ConfigError, which suggests the nearest name and lists all, if
/// there is none.
const ScheduleGenerator& find_generator(std::string_view name);
/// True if a pipeline can train with the schedules of `generator`: they go backward, and each stage has one owner.
bool trains(const ScheduleGenerator& generator);
/// The schedule that the generator `name` makes: compute instructions only, not lowered. Throws ConfigError for an
/// unknown name, and for a shape or a tuning out of range. `tuning` matters only to generators with
/// fits_limit.
Schedule generate(std::string_view name, const ScheduleShape& shape, const Tuning& tuning = {});

}  // namespace penstock
