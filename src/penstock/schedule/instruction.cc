#include "penstock/schedule/instruction.h"

#include <algorithm>
#include <charconv>

#include "penstock/base/error.h"

namespace penstock {

const char* to_string(Op op) {
  switch (op) {
    case Op::forward: return "F";
    case Op::backward: return "B";
    case Op::input_grad: return "I";
    case Op::weight_grad: return "W";
    case Op::send_forward: return "SEND_F";
    case Op::recv_forward: return "RECV_F";
    case Op::send_backward: return "SEND_B";
    case Op::recv_backward: return "RECV_B";
    case Op::reduce: return "REDUCE";
    case Op::norm: return "NORM";
    case Op::step: return "STEP";
  }
  return "?";
}

InstructionText instruction_text(const Instruction& instruction) noexcept {
  InstructionText text;
  char* at = text.letters.data();
  const auto add_number = [&](std::int32_t number) {
    at = std::to_chars(at, text.letters.data() + text.letters.size(), number).ptr;
  };
  const Op op = instruction.op();
  add_number(instruction.stage().value());
  for (const char* letter = to_string(op); *letter != '\0'; ++letter) *at++ = *letter;
  if (!is_step_wide(op)) {
    add_number(instruction.first().value());
    if (instruction.is_fused()) {
      *at++ = '-';
      add_number(instruction.last().value());
    }
    if (is_message(op) && instruction.peer() != neighbour(op, instruction.stage())) {
      *at++ = is_send(op) ? '>' : '<';
      add_number(instruction.peer().value());
    }
  }
  text.length = static_cast<std::size_t>(at - text.letters.data());
  return text;
}

std::string to_string(const Instruction& instruction) { return std::string(instruction_text(instruction).view()); }

namespace {

template <class Predicate>
bool any_op(const Schedule& schedule, Predicate&& predicate) {
  return std::any_of(schedule.orders.begin(), schedule.orders.end(), [&](const Order& order) {
    return std::any_of(order.begin(), order.end(), [&](const Instruction& one) { return predicate(one.op()); });
  });
}

}  // namespace

std::optional<int> Schedule::copy_on(StageId stage, Rank rank) const {
  for (int pipeline = 0; pipeline < pipeline_count(); ++pipeline)
    if (placement(pipeline)[stage.index()] == rank) return pipeline;
  return std::nullopt;
}

std::vector<int> Schedule::chunks() const {
  std::vector<int> chunks(orders.size(), 0);
  for (const Rank rank : rank_of_stage)
    if (rank.index() < chunks.size()) ++chunks[rank.index()];
  return chunks;
}

std::size_t Schedule::instruction_count() const {
  std::size_t count = 0;
  for (const Order& order : orders) count += order.size();
  return count;
}

bool Schedule::has(Op op) const {
  return any_op(*this, [op](Op one) { return one == op; });
}

bool Schedule::is_lowered() const {
  return any_op(*this, [](Op op) { return !is_compute(op); });
}

bool Schedule::is_forward_only() const {
  return !any_op(*this, [](Op op) { return is_compute(op) && op != Op::forward; });
}

bool Schedule::completes_gradients(const Instruction& instruction) const {
  if (instruction.op() != Op::backward && instruction.op() != Op::weight_grad) return false;
  const auto last = static_cast<std::ptrdiff_t>(instruction.last().index());
  if (pipeline_of.empty()) return last + 1 == micro_batches;
  return std::find(pipeline_of.begin() + last + 1, pipeline_of.end(), pipeline_of[instruction.last().index()]) ==
         pipeline_of.end();
}

void require_single_owner(const Schedule& schedule, std::string_view what) {
  require<ScheduleError>(schedule.more_pipelines.empty(), "schedule '", schedule.name, "' has ",
                         schedule.pipeline_count(), " copies of each stage, but ", what,
                         " needs one: take a schedule of one pipeline, such as 'hanayo'");
}

}  // namespace penstock
