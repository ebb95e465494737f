// The flags by which verbs name a schedule.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "penstock/schedule/schedule.h"

namespace penstock {

/// A schedule, and what is known of it besides.
struct NamedSchedule {
  Schedule schedule;
  std::vector<std::string> notes;                    // what was changed while reading
  std::optional<std::vector<int>> activation_bound;  // when a generator made it
};

class ScheduleArgument {
 public:
  /// Adds --schedule (also without the flag's name), --stages, --micro-batches and --chunks. `this` must outlive the
  /// parsing.
  void add_to(CLI::App& verb);

  /// A generator's name goes before a file's; "./gpipe" is always a file. Throws ConfigError for a missing or
  /// contradicting flag, DataError for a file that is no schedule.
  NamedSchedule get() const;

 private:
  NamedSchedule from_file() const;
  NamedSchedule from_generator() const;

  std::string source_;
  std::optional<int> stages_;
  std::optional<int> micro_batches_;
  std::optional<int> chunks_;
};

}  // namespace penstock
