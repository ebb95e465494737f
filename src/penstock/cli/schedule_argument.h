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
  std::optional<std::vector<int>> activation_bound;  // what the user allows, else what the generator promises
  bool fits_limit = false;                           // the generator took the user's limit into account
};

class ScheduleArgument {
 public:
  /// Adds --schedule (also without the flag's name), --stages, --micro-batches, --chunks, --memory-limit and --fuse-w.
  /// `this` must outlive the parsing.
  void add_to(CLI::App& verb);

  /// A generator's name goes before a file's; "./gpipe" is always a file. `costs` are for generators that fit a
  /// schedule to them. Throws ConfigError for a missing or contradicting flag and for costs that do not fit the stages,
  /// DataError for a file that is no schedule, ScheduleError for a schedule that cannot be fused.
  NamedSchedule get(const Costs& costs) const;

 private:
  NamedSchedule from_file(const Costs& costs) const;
  NamedSchedule from_generator(const Costs& costs) const;
  FuseOptions fuse_options(const Schedule& schedule) const;

  std::string source_;
  std::optional<int> stages_;
  std::optional<int> micro_batches_;
  std::optional<int> chunks_;
  std::optional<double> memory_limit_;
  std::string fuse_w_;  // empty: not; "all", or how many micro-batches
};

/// The schedule as it will run: validated, and with its messages and the optimiser's step. Throws ScheduleError with the grid
/// and the offending instruction.
Schedule ready_to_run(const NamedSchedule& named);

}  // namespace penstock
