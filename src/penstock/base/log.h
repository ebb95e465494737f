// Log lines for people, to stderr. The library logs warnings only; results are values, never log lines.
// Thread-safe. Behind it stands spdlog, in one torch-free file: its fmt and LibTorch's fmt do not mix.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

enum class LogLevel { debug, info, warning, error, off };

void log(LogLevel level, std::string_view line);
inline void warn(std::string_view line) { log(LogLevel::warning, line); }

/// Lines below `level` are dropped. The default is `warning`.
void set_log_level(LogLevel level);

/// Prefixes every following line, e.g. with "rank 1"; empty for none. Used where many processes share a screen.
void set_log_name(std::string name);

}  // namespace penstock
