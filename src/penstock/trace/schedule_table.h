// Every schedule in one table: what its source promises, what the simulator says, and what a run measured.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/schedule/generate.h"

namespace penstock {

/// What one step of a schedule came to.
struct StepFigures {
  double bubble_span = 0;      // idle share of rank time, of the span
  double bubble_makespan = 0;  // ... of the makespan
  double live = 0;             // most live micro-batches of a rank, each in full until its B or W; a chunk counts 1/v
  std::int64_t messages = 0;   // sent by all ranks
};

struct TableRow {
  std::string schedule;
  ScheduleShape shape;
  std::string bubble_formula;  // empty where the source gives none
  std::string memory_formula;
  std::string message_formula;
  StepFigures simulated;
  std::optional<StepFigures> measured;  // for the caller to fill in, who can run it
};

/// What simulate() and the messages of the lowered list say of `schedule`.
StepFigures simulated_figures(const Schedule& schedule, const Costs& costs);

struct TableShape {
  int ranks = 1;
  int micro_batches = 1;
  std::optional<int> chunks;  // for the schedules that take so many; the others, or if none: their own number
};

/// A row for each generator, at F = I = W = 1 and C = 0. Throws ConfigError for a shape that cannot be.
std::vector<TableRow> schedule_table(const TableShape& shape);

/// As a table of Markdown: for each of bubble, activations and messages the source's formula, what was simulated, and,
/// if any row has it, what was measured (of the bubble: the makespan's).
std::string to_markdown(std::span<const TableRow> rows);
/// The same for a terminal.
std::string to_table(std::span<const TableRow> rows);

}  // namespace penstock
