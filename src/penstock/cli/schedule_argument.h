// The flags that select a schedule, and those that set the costs of its stages.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "penstock/schedule/schedule.h"
#include "penstock/schedule/stage_costs.h"

namespace penstock::cli {

/// Costs as they are given: of each stage, or of all stages of a rank together.
struct GivenCosts {
  StageCosts costs;
  bool is_per_rank = false;

  /// Of the stages of a schedule with `chunks` stages per rank.
  StageCosts of_stages(int chunks) const { return is_per_rank ? divided(costs, chunks) : costs; }
};

/// A schedule with its costs and its memory bound.
struct NamedSchedule {
  Schedule schedule;
  StageCosts costs;                                  // of its stages
  std::vector<std::string> notes;                    // for the user: changes made while reading a file
  std::optional<std::vector<int>> activation_bound;  // live micro-batches per rank: user's limit, or generator's bound
  bool fits_limit = false;                           // whether the generator adapts to the user's limit
  bool is_planned = false;                           // read from a plan file
};

class ScheduleArgument {
 public:
  /// Adds --schedule (also without the flag's name), --stages, --micro-batches, --chunks, --memory-limit and --fuse-w.
  /// `this` must outlive the parsing.
  void add_to(CLI::App& verb);

  /// Generates or reads the schedule. A generator's name takes precedence over a file's; "./gpipe" is always a file.
  /// `given` are used by generators that optimise for them, and by a memory limit in bytes. Throws ConfigError for
  /// missing or contradicting flags, for a schedule above the limit and for costs that do not fit the stages,
  /// DataError for a file that is not a schedule, ScheduleError for a schedule that cannot be fused.
  NamedSchedule get(const GivenCosts& given) const;
  /// The same for each of the schedules that commas separate: "1f1b,zb-v", each once.
  std::vector<NamedSchedule> get_all(const GivenCosts& given) const;

 private:
  NamedSchedule from_file(const GivenCosts& given) const;
  NamedSchedule from_generator(const GivenCosts& given) const;
  FuseOptions fuse_options(const Schedule& schedule, const StageCosts& costs) const;

  std::string source_;
  std::optional<int> stages_;
  std::optional<int> micro_batches_;
  std::optional<int> chunks_;
  std::optional<MemoryLimit> memory_limit_;
  std::string fuse_w_;  // empty: no fusing; "all", or a number of micro-batches
};

/// The validated and lowered schedule, with communication and the optimiser's step. Throws ScheduleError with the
/// timeline grid and the violating instruction.
Schedule ready_to_run(const NamedSchedule& named);

class CostFlags {
 public:
  /// Adds --cost-f, --cost-i, --cost-w, --cost-update, --cost-comm, --cost-gap, --cost-per, --weight-share,
  /// --activation-bytes, --slowdown, --send-share, --per-step and --cost-file. `this` must outlive the parsing.
  void add_to(CLI::App& verb);

  /// The costs of the file, or StageCosts::unit() without one, overridden by the other flags. Throws ConfigError for
  /// invalid flags, DataError for an invalid file.
  GivenCosts costs() const;

 private:
  std::optional<std::string> forward_;
  std::optional<std::string> input_grad_;
  std::optional<std::string> weight_grad_;
  std::optional<std::string> update_;
  std::optional<std::string> message_;
  std::optional<double> gap_;
  std::string per_ = "stage";
  std::optional<double> weight_share_;
  std::optional<std::string> activation_bytes_;
  std::optional<double> slowdown_;
  std::optional<double> send_share_;
  std::optional<double> per_step_;
  std::optional<std::string> file_;
};

}  // namespace penstock::cli
