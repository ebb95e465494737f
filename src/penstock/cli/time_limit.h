// Time limits of command lines, which mean what they mean to Slurm.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

/// Seconds above 0, of H:MM:SS, M:SS (minutes and seconds), D-H, D-H:MM or D-H:MM:SS. Numbers after a colon have two
/// digits and are below 60; hours after days are below 24. `flag` is named by errors: throws ConfigError for other
/// texts, also for a plain number, which Slurm reads as minutes and other programs as seconds.
double parse_time_limit(std::string_view flag, std::string_view text);

/// The text H:MM:SS of a limit, rounded up to whole seconds, of one second at least; parse_time_limit() takes it for
/// every limit that it has returned, and for shorter ones.
std::string time_limit_text(double seconds);

}  // namespace penstock
