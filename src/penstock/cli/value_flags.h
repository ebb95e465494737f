// Flags whose text becomes a value of the library: a choice of names, a time, a memory limit. Parsing a command line
// assigns the value to a target, which must outlive it. And time limits, which mean what they mean to Slurm.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "penstock/base/error.h"
#include "penstock/schedule/memory_limit.h"
#include "penstock/schedule/weight_gradients.h"

namespace penstock::cli {

template <class Value>
using Choices = std::vector<std::pair<std::string, Value>>;

/// Adds a flag that takes one of the names. `target` is a Value or an optional one; the help shows its present value as
/// the default.
template <class Target, class Value>
CLI::Option* add_choice(CLI::App& app, const std::string& flag, Target& target, const Choices<Value>& choices,
                        const std::string& help) {
  std::vector<std::string> names;
  std::string present;
  for (const auto& [name, value] : choices) {
    names.push_back(name);
    if (target == value) present = name;
  }
  const auto assign = [&target, choices](const std::string& text) {
    for (const auto& [name, value] : choices)
      if (name == text) target = value;
  };
  CLI::Option* option = app.add_option_function<std::string>(flag, assign, help)->check(CLI::IsMember(names));
  return present.empty() ? option : option->default_str(present);
}

/// Adds a flag that takes one of the names as its text.
inline CLI::Option* add_choice(CLI::App& app, const std::string& flag, std::string& target,
                               const std::vector<std::string>& names, const std::string& help) {
  return app.add_option(flag, target, help)->check(CLI::IsMember(names))->capture_default_str();
}

/// Adds --weight-gradients. Grouped is refused: only plans have it.
template <class Target>
CLI::Option* add_weight_gradients(CLI::App& app, Target& mode, const std::string& help) {
  Choices<WeightGradients> choices;
  for (const auto named : {WeightGradients::stream, WeightGradients::fused, WeightGradients::automatic})
    choices.emplace_back(to_string(named), named);
  return add_choice(app, "--weight-gradients", mode, choices, help);
}

/// Adds a flag that takes seconds. `target` is a number of milliseconds or an optional one.
template <class Target>
CLI::Option* add_seconds(CLI::App& app, const std::string& flag, Target& target, const std::string& help) {
  const auto assign = [&target, flag](double seconds) {
    constexpr double shortest = 1e-3, longest = 1e6;
    require<ConfigError>(seconds >= shortest && seconds <= longest, flag, " ", seconds, ": pass seconds between ",
                         shortest, " and ", longest);
    target = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
  };
  CLI::Option* option = app.add_option_function<double>(flag, assign, help);
  const std::optional<std::chrono::milliseconds> present = target;
  return present ? option->default_str(say(std::chrono::duration<double>(*present).count())) : option;
}

/// Adds --memory-limit. `rest` ends the help text. Parsing a text that is not a limit throws ConfigError.
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

/// A time limit as Slurm reads it: seconds above 0, of H:MM:SS, M:SS (minutes and seconds), D-H, D-H:MM or D-H:MM:SS.
/// Numbers after a colon have two digits and are below 60; hours after days are below 24. `flag` is named by errors:
/// throws ConfigError for other texts, also for a plain number, which Slurm reads as minutes and other programs as
/// seconds.
double parse_time_limit(std::string_view flag, std::string_view text);

/// The text H:MM:SS of a limit, rounded up to whole seconds, of one second at least; parse_time_limit() takes it for
/// every limit that it has returned, and for shorter ones.
std::string time_limit_text(double seconds);

}  // namespace penstock::cli
