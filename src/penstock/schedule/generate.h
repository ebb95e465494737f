// Generators: who computes what, in which order. They write compute instructions only; `lower` adds the rest.
// Every one is valid for every p >= 1, m >= 1 and each v that it takes.
#pragma once

#include <span>
#include <string_view>

#include "penstock/schedule/generator.h"

namespace penstock {

/// "1f1b", or "interleaved" for more than one chunk per rank.
std::string_view default_schedule(int chunks);
/// All generators, in the order in which --help lists them.
std::span<const Generator> generators();
/// Throws ConfigError that lists the known names.
const Generator& find_generator(std::string_view name);
/// find_generator(name).generate(shape), after checking the shape and the tuning (ConfigError).
Schedule generate(std::string_view name, const ScheduleShape& shape, const Tuning& tuning = {});

}  // namespace penstock
