#include "penstock/schedule/torch_csv.h"

#include <algorithm>
#include <optional>

#include "penstock/base/error.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/replay.h"
#include "penstock/schedule/violation.h"

namespace penstock {
namespace {

constexpr const char* row_end = "\r\n";

/// The first message between stages that are not neighbours, if there is one.
std::optional<Instruction> skip_link(const Schedule& schedule) {
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order)
      if ((is_send(instruction.op()) || is_receive(instruction.op())) &&
          instruction.peer() != neighbour(instruction.op(), instruction.stage()))
        return instruction;
  return std::nullopt;
}

/// `schedule` with every fused W expanded and without NORM and STEP, which torch's format does not have.
Schedule in_torch_form(const Schedule& schedule) {
  Schedule plain{schedule.name, schedule.micro_batches, schedule.rank_of_stage, {}};
  for (const Order& order : schedule.orders) {
    Order& row = plain.orders.emplace_back();
    for (const Instruction& instruction : order) {
      if (instruction.op() == Op::norm || instruction.op() == Op::step) continue;
      if (!instruction.is_fused()) {
        row.push_back(instruction);
        continue;
      }
      for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next())
        row.push_back(Instruction::compute(Op::weight_grad, instruction.stage(), i));
    }
  }
  return plain;
}

std::string cell_of(const Instruction& instruction) {
  return instruction.op() == Op::reduce ? std::to_string(instruction.stage().value()) + "REDUCE_GRAD"
                                        : to_string(instruction);
}

std::string pair_cell(const Instruction& first, const Instruction& second) {
  return "(" + cell_of(first) + ";" + cell_of(second) + ")OVERLAP_F_B";
}

/// The column of every instruction when each takes one unit and an overlap pair shares one.
std::vector<std::vector<int>> columns_of(const Schedule& schedule) {
  std::vector<std::vector<int>> columns(schedule.orders.size());
  std::vector<int> clock(schedule.orders.size(), 0);
  const auto run = [&](Rank rank, int, const Instruction& instruction, double ready) {
    int& now = clock[rank.index()];
    now = std::max(now, static_cast<int>(ready));
    columns[rank.index()].push_back(now);
    const int end = now + 1;
    if (!instruction.overlaps_next()) now = end;
    return static_cast<double>(end);
  };
  const Reach progress = replay(schedule, Dependencies(schedule, chain(schedule.stage_count())), 0, run);
  require<ScheduleError>(progress.finished, "a schedule that deadlocks has no columns: validate() reports where");
  return columns;
}

std::string compute_table(const Schedule& schedule) {
  if (auto violation = find_incomplete(schedule, Dependencies(schedule, chain(schedule.stage_count()))))
    throw ScheduleError("no CSV with bubbles for this schedule: " + violation->reason);
  const std::vector<std::vector<int>> columns = columns_of(schedule);
  std::string text;
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank) {
    const Order& order = schedule.orders[rank];
    int column = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const bool pair = order[k].overlaps_next();
      if (pair) ++k;  // the cell of a pair is in the column of its second half
      for (; column < columns[rank][k]; ++column) text += ',';
      text += pair ? pair_cell(order[k - 1], order[k]) : cell_of(order[k]);
    }
    text += row_end;
  }
  return text;
}

/// Moves receives inside a pair before it and sends behind it: in torch's format the two halves share one cell.
Order with_closed_pairs(const Order& order) {
  Order closed;
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (!order[k].overlaps_next()) {
      closed.push_back(order[k]);
      continue;
    }
    Order sends;
    std::size_t other = k + 1;
    for (; other < order.size() && !is_compute(order[other].op()); ++other)
      (is_send(order[other].op()) ? sends : closed).push_back(order[other]);
    require<ScheduleError>(other < order.size(), to_string(order[k]), " overlaps with nothing");
    closed.push_back(order[k]);
    closed.push_back(order[other]);
    closed.insert(closed.end(), sends.begin(), sends.end());
    k = other;
  }
  return closed;
}

std::string message_table(const Schedule& schedule) {
  std::string text;
  for (const Order& open : schedule.orders) {
    const Order order = with_closed_pairs(open);
    for (std::size_t k = 0; k < order.size(); ++k) {
      if (k > 0) text += ',';
      const bool pair = order[k].overlaps_next();
      text += pair ? pair_cell(order[k], order[k + 1]) : cell_of(order[k]);
      if (pair) ++k;
    }
    text += row_end;
  }
  return text;
}

}  // namespace

std::string write_torch_csv(const Schedule& schedule, const CsvOptions& options) {
  if (auto violation = find_misplaced(schedule)) throw ScheduleError("no CSV for this schedule: " + violation->reason);
  const auto skip = skip_link(schedule);
  require<ScheduleError>(!skip, "the skip link of ", skip ? to_string(*skip) : "",
                         " cannot be represented in torch's CSV: its ",
                         "parser matches prefixes and would read it as a link between neighbours");
  const Schedule plain = in_torch_form(schedule);
  for (std::size_t rank = 0; rank < plain.orders.size(); ++rank)
    require<ScheduleError>(
        !plain.orders[rank].empty(), "rank ", rank,
        " has no instructions: torch takes the ranks of a CSV from its rows, and an empty one is lost");
  if (!options.messages) return compute_table(strip(plain));  // expanding and stripping misplaces nothing
  return message_table(schedule.is_lowered() ? plain : lower(plain, LowerOptions{.step = false}));
}

}  // namespace penstock
