#include "penstock/base/log.h"

#include <memory>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "penstock/base/text.h"

namespace penstock {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::off: return spdlog::level::off;
  }
  return spdlog::level::off;
}

/// A logger of our own: a program that uses spdlog itself keeps its settings.
spdlog::logger& logger() {
  static const auto instance = [] {
    // The sink writes colours only on a terminal.
    auto made = std::make_shared<spdlog::logger>("penstock", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_level(spdlog::level::warn);
    made->set_pattern("penstock: %^%l%$: %v");
    return made;
  }();
  return *instance;
}

}  // namespace

void log(LogLevel level, std::string_view line) { logger().log(to_spdlog(level), public_text(line)); }

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

}  // namespace penstock
