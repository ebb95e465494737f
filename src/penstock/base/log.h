// Log lines for people, written to stderr. The library logs warnings only; results are return values, never log lines.
// All functions are thread-safe. The implementation uses spdlog in one file without LibTorch headers, because the fmt
// versions of spdlog and LibTorch cannot be included together.
#pragma once

#include <string_view>

namespace penstock {

enum class LogLevel { debug, info, warning, error, off };

/// Writes public_text(line).
void log(LogLevel level, std::string_view line);
inline void warn(std::string_view line) { log(LogLevel::warning, line); }

/// Drops lines below `level`. The default is `warning`.
void set_log_level(LogLevel level);

}  // namespace penstock
