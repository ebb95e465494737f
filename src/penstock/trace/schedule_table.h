// A table of all schedules: the formulas of their sources, simulated values and, if there was a run, measured values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/schedule/generate.h"

namespace penstock {

/// The properties of one step of a schedule.
struct StepFigures {
  double bubble_span = 0;      // the idle share of rank time in the span
  double bubble_makespan = 0;  // the idle share of rank time in the makespan
  double live = 0;             // the peak of live micro-batches of a rank, each counted 1/v per chunk until its B or W
  std::int64_t messages = 0;   // of all ranks
};

struct TableRow {
  std::string schedule;
  ScheduleShape shape;
  std::string bubble_formula;  // empty if the source gives none
  std::string memory_formula;
  std::string message_formula;
  StepFigures simulated;
  std::optional<StepFigures> measured;  // none from schedule_table(); the caller may set it
};

/// The properties of `schedule`, from simulate() and from the messages of the lowered schedule.
StepFigures simulated_figures(const Schedule& schedule, const StageCosts& costs);

struct TableShape {
  int ranks = 1;
  int micro_batches = 1;
  std::optional<int> chunks;  // for generators that permit so many; the others, and none, use their default
};

/// A row for each generator, with costs F = I = W = 1 and C = 0. Throws ConfigError for a shape out of range.
std::vector<TableRow> schedule_table(const TableShape& shape);

/// The rows as a Markdown table. For bubble, activations and messages it has the formula of the source, the simulated
/// value and, if any row has one, the measured value (for the bubble, that in the makespan).
std::string to_markdown(std::span<const TableRow> rows);
/// The same table for a terminal.
std::string to_table(std::span<const TableRow> rows);

}  // namespace penstock
