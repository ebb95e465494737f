#include "penstock/schedule/torch_csv.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <queue>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/parse_instruction.h"
#include "penstock/schedule/replay.h"
#include "penstock/schedule/violation.h"

namespace penstock {
namespace {

constexpr const char* row_end = "\r\n";

/// The first message between stages that are not neighbours, if there is one.
std::optional<Instruction> skip_link(const Schedule& schedule) {
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order)
      if (is_message(instruction.op()) && instruction.peer() != neighbour(instruction.op(), instruction.stage()))
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
  const Reach progress = replay(schedule, Dependencies(schedule, chain(schedule.stage_count())), no_message_time, run);
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

/// Moves receives inside a pair before it and sends after it: in torch's format the two halves share one cell.
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

constexpr std::string_view overlap_end = ")OVERLAP_F_B";

std::string_view trimmed(std::string_view cell) {
  while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
  while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
  return cell;
}

/// The position of a cell for messages, counted from 1.
struct Place {
  std::size_t row = 1;
  std::size_t cell = 1;
};

[[noreturn]] void fail(Place place, const std::string& error) {
  throw DataError(say("row ", place.row, ", cell ", place.cell, ": ", error));
}

Instruction instruction_of(std::string_view cell, Place place) {
  const std::size_t digits = std::min(cell.find_first_not_of("0123456789"), cell.size());
  const std::string_view rest = cell.substr(digits);
  if (rest.starts_with("UNSHARD") || rest.starts_with("RESHARD"))
    fail(place, say(quoted(cell), ": parameters are not sharded here; write the CSV without UNSHARD and RESHARD"));
  std::string instruction(cell);
  if (rest == "REDUCE_GRAD")
    instruction = std::string(cell.substr(0, digits)) + "REDUCE";
  else if (rest == "REDUCE" || rest == "NORM" || rest == "STEP")
    fail(place, say(quoted(cell), " is not an instruction of torch's CSV"));
  const ParsedInstruction parsed = try_parse_instruction(instruction);
  if (!parsed.instruction) fail(place, say(quoted(cell), ", column ", parsed.at + 1, ": ", parsed.error));
  if (parsed.instruction->is_fused() || cell.find_first_of("<>") != std::string_view::npos)
    fail(place, say(quoted(cell), " is an instruction of .sched files, not of torch's CSV"));
  if (parsed.instruction->last().value() == std::numeric_limits<std::int32_t>::max())
    fail(place, say(quoted(cell), ": the micro-batch is too large"));
  return *parsed.instruction;
}

void read_cell(std::string_view cell, Place place, Order& order) {
  if (cell.empty()) return;
  if (cell.front() != '(') {
    order.push_back(instruction_of(cell, place));
    return;
  }
  if (!cell.ends_with(overlap_end)) fail(place, say(quoted(cell), " does not end with '", overlap_end, "'"));
  cell.remove_prefix(1);
  cell.remove_suffix(overlap_end.size());
  const std::size_t half = cell.find(';');
  if (half == std::string_view::npos) fail(place, "an overlap takes two instructions, separated by ';'");
  const Instruction first = instruction_of(trimmed(cell.substr(0, half)), place);
  const Instruction second = instruction_of(trimmed(cell.substr(half + 1)), place);
  if (first.op() != Op::forward || (second.op() != Op::backward && second.op() != Op::input_grad))
    fail(place, "an overlap is F, then B or I");
  order.push_back(first.overlapping_next());
  order.push_back(second);
}

/// Infers stages, micro-batches and placement. A stage belongs to the rank in whose row it computes; all of 0..S-1 must
/// occur.
void infer_shape(Schedule& schedule) {
  std::vector<std::int32_t> rank_of_stage;
  std::size_t computed = 0;
  std::int32_t last_micro_batch = 0;
  std::size_t stages = 0;
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank)
    for (const Instruction& instruction : schedule.orders[rank]) {
      last_micro_batch = std::max(last_micro_batch, instruction.last().value());
      stages = std::max({stages, instruction.stage().index() + 1, instruction.peer().index() + 1});
      if (!is_compute(instruction.op())) continue;
      if (rank_of_stage.size() <= instruction.stage().index())
        rank_of_stage.resize(instruction.stage().index() + 1, -1);
      std::int32_t& owner = rank_of_stage[instruction.stage().index()];
      computed += owner < 0;
      if (owner < 0) owner = static_cast<std::int32_t>(rank);
      require<DataError>(owner == static_cast<std::int32_t>(rank), "row ", rank + 1, ": ", to_string(instruction),
                         " is here, but stage ", instruction.stage().value(), " computes in row ", owner + 1);
    }
  require<DataError>(stages > 0, "this CSV has no instruction");
  rank_of_stage.resize(stages, -1);
  if (computed < stages) {
    const auto absent = std::find(rank_of_stage.begin(), rank_of_stage.end(), -1) - rank_of_stage.begin();
    throw DataError(say("stage ", absent, " computes nowhere, but the stages go up to ", stages - 1));
  }
  schedule.micro_batches = last_micro_batch + 1;
  for (const std::int32_t rank : rank_of_stage) schedule.rank_of_stage.push_back(Rank(rank));
}

/// The weight gradients of one stage while they are put into ascending order.
struct WeightOrder {
  std::vector<std::int32_t> ascending;  // micro-batches with B or W
  std::size_t next = 0;                 // in `ascending`: the first one that has not accumulated
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> waiting;
  std::size_t delayed = 0;

  bool is_next(MicroBatch i) const { return ascending[next] == i.value(); }
};

constexpr bool has_weight(Op op) { return op == Op::backward || op == Op::weight_grad; }

/// One row with its weight gradients in ascending order. A B that comes too early becomes I, and its W waits. A waiting
/// W is placed after the B or W of the micro-batch before it, and after the messages of that instruction.
Order with_ascending_weights(const Order& order, std::vector<WeightOrder>& stages) {
  Order result;
  Order due;
  bool within_pair = false;
  for (const Instruction& instruction : order) {
    const bool message = is_message(instruction.op());
    if (!message && !within_pair) {
      result.insert(result.end(), due.begin(), due.end());
      due.clear();
    }
    within_pair = instruction.overlaps_next() || (within_pair && message);
    if (!has_weight(instruction.op())) {
      result.push_back(instruction);
      continue;
    }
    WeightOrder& stage = stages[instruction.stage().index()];
    if (!stage.is_next(instruction.micro_batch())) {
      if (instruction.op() == Op::backward)
        result.push_back(Instruction::compute(Op::input_grad, instruction.stage(), instruction.micro_batch()));
      stage.waiting.push(instruction.micro_batch().value());
      ++stage.delayed;
      continue;
    }
    result.push_back(instruction);
    ++stage.next;
    for (; !stage.waiting.empty() && stage.is_next(MicroBatch(stage.waiting.top())); ++stage.next) {
      due.push_back(Instruction::compute(Op::weight_grad, instruction.stage(), MicroBatch(stage.waiting.top())));
      stage.waiting.pop();
    }
  }
  result.insert(result.end(), due.begin(), due.end());
  return result;
}

std::vector<std::string> put_weights_in_order(Schedule& schedule) {
  std::vector<WeightOrder> stages(schedule.rank_of_stage.size());
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order)
      if (has_weight(instruction.op()))
        stages[instruction.stage().index()].ascending.push_back(instruction.micro_batch().value());
  for (WeightOrder& stage : stages) std::sort(stage.ascending.begin(), stage.ascending.end());
  for (Order& order : schedule.orders) order = with_ascending_weights(order, stages);

  std::vector<std::string> notes;
  for (std::size_t s = 0; s < stages.size(); ++s)
    if (stages[s].delayed > 0)
      notes.push_back(say("stage ", s, ": ", stages[s].delayed, " of ", stages[s].ascending.size(),
                          " weight gradients came out of micro-batch order: B became I, and W is delayed"));
  return notes;
}

}  // namespace

std::string write_torch_csv(const Schedule& schedule, const CsvOptions& options) {
  require_single_owner(schedule, "torch's CSV");
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

CsvSchedule read_torch_csv(std::string_view text) {
  CsvSchedule result;
  Schedule& schedule = result.schedule;
  std::vector<std::string_view> rows = separated(text, '\n');
  if (rows.back().empty()) rows.pop_back();  // after the last line break
  for (std::string_view row : rows) {
    if (row.ends_with('\r')) row.remove_suffix(1);
    Order& order = schedule.orders.emplace_back();
    Place place{schedule.orders.size(), 0};
    for (const std::string_view cell : separated(row, ',')) {
      ++place.cell;
      read_cell(trimmed(cell), place, order);
    }
    if (order.empty()) fail({place.row, 1}, "a row without instructions: every rank owns a stage");
  }
  infer_shape(schedule);
  result.notes = put_weights_in_order(schedule);
  return result;
}

}  // namespace penstock
