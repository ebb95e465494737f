#include "penstock/trace/schedule_table.h"

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/simulate.h"
#include "penstock/trace/timeline.h"

namespace penstock {
namespace {

using Cells = std::vector<std::string>;

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

/// The cells of the table; the first row is the heading.
std::vector<Cells> cells_of(std::span<const TableRow> rows) {
  const bool is_measured = std::any_of(rows.begin(), rows.end(), [](const TableRow& row) { return row.measured; });
  std::vector<Cells> table;
  const auto add = [&](const std::string& schedule, const std::string& chunks, Cells bubble, Cells activations,
                       Cells messages) {
    Cells& cells = table.emplace_back(Cells{schedule, chunks});
    for (Cells* part : {&bubble, &activations, &messages}) {
      if (!is_measured) part->pop_back();
      cells.insert(cells.end(), part->begin(), part->end());
    }
  };

  add("schedule", "v", {"idle time", "bubble, span", "bubble, makespan", "bubble, measured"},
      {"activations", "simulated", "measured"}, {"messages", "simulated", "measured"});
  for (const TableRow& row : rows) {
    const auto measured = [&](auto&& text_of) { return row.measured ? text_of(*row.measured) : std::string("-"); };
    add(row.schedule, std::to_string(row.shape.chunks),
        {or_dash(row.bubble_formula), percent(row.simulated.bubble_span), percent(row.simulated.bubble_makespan),
         measured([](const StepFigures& figures) { return percent(figures.bubble_makespan); })},
        {or_dash(row.memory_formula), shortened(row.simulated.live),
         measured([](const StepFigures& figures) { return shortened(figures.live); })},
        {or_dash(row.message_formula), std::to_string(row.simulated.messages),
         measured([](const StepFigures& figures) { return std::to_string(figures.messages); })});
  }
  return table;
}

}  // namespace

StepFigures simulated_figures(const Schedule& schedule, const StageCosts& costs) {
  const Schedule lowered = schedule.is_lowered() ? schedule : lower(schedule);
  const Simulation simulation = simulate(lowered, costs);
  StepFigures figures{.bubble_span = simulation.bubble_span, .bubble_makespan = simulation.bubble_makespan};
  const std::vector<int> chunks = lowered.chunks();
  for (std::size_t rank = 0; rank < chunks.size(); ++rank)
    figures.live = std::max(figures.live, static_cast<double>(simulation.peak_contexts[rank]) / chunks[rank]);
  for (const Order& order : lowered.orders)
    figures.messages += std::count_if(order.begin(), order.end(),
                                      [](const Instruction& instruction) { return is_send(instruction.op()); });
  return figures;
}

std::vector<TableRow> schedule_table(const TableShape& shape) {
  const auto takes = [&](const ScheduleGenerator& one) {
    return shape.chunks && *shape.chunks >= one.min_chunks && *shape.chunks <= one.max_chunks;
  };
  require<ConfigError>(!shape.chunks || std::ranges::any_of(generators(), takes), "a table of schedules with ",
                       shape.chunks.value_or(0), " chunks per rank, which none takes: pass a number that one takes");
  std::vector<TableRow> rows;
  for (const ScheduleGenerator& generator : generators()) {
    const ScheduleShape own{shape.ranks, shape.micro_batches,
                            takes(generator) ? *shape.chunks : generator.default_chunks};
    rows.push_back({.schedule = std::string(generator.name),
                    .shape = own,
                    .bubble_formula = std::string(generator.bubble_formula),
                    .memory_formula = std::string(generator.memory_formula),
                    .message_formula = std::string(generator.message_formula),
                    .simulated = simulated_figures(generate(generator.name, own), StageCosts::unit()),
                    .measured = {}});
  }
  return rows;
}

std::string to_markdown(std::span<const TableRow> rows) {
  std::vector<Cells> table = cells_of(rows);
  Cells rule(table.front().size(), "---:");
  rule.front() = "---";
  table.insert(table.begin() + 1, std::move(rule));
  std::string text;
  for (const Cells& cells : table) {
    for (const std::string& cell : cells) text += "| " + cell + " ";
    text += "|\n";
  }
  return text;
}

std::string to_table(std::span<const TableRow> rows) { return aligned(cells_of(rows)); }

}  // namespace penstock
