// The flag --memory-limit.
#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "penstock/base/error.h"
#include "penstock/schedule/memory_limit.h"

namespace penstock {

/// Adds the flag; parsing it assigns to `limit`, which must outlive the parsing. `rest` ends the help text. A value
/// that is no limit throws ConfigError while the command line is parsed.
inline CLI::Option* add_memory_limit(CLI::App& app, std::optional<MemoryLimit>& limit, const std::string& rest = "") {
  const auto assign = [&limit](const std::string& text) {
    try {
      limit = parse_memory_limit(text);
    } catch (const ConfigError& error) {
      throw ConfigError(say("--memory-limit: ", error.what()));
    }
  };
  return app
      .add_option_function<std::string>("--memory-limit", assign,
                                        "limit of the activations per rank: a multiple of 1f1b's min(m, p) live "
                                        "micro-batches, such as 1.5, or bytes, "
                                        "such as 512MiB or 3e9B" +
                                            rest)
      ->type_name("X|BYTES");
}

}  // namespace penstock
