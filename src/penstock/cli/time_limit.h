// Time limits of command lines, as batch systems write them: [D-]H:MM:SS.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

/// Seconds above 0. `flag` is named by errors: throws ConfigError for other texts.
double parse_time_limit(std::string_view flag, std::string_view text);

/// The text of a limit, rounded up to whole seconds, of one second at least.
std::string time_limit_text(double seconds);

}  // namespace penstock
