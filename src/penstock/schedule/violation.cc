#include "penstock/schedule/violation.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "penstock/base/error.h"

namespace penstock {
namespace {

GridCell cell(std::size_t rank, std::size_t position) {
  return {Rank(static_cast<std::int32_t>(rank)), static_cast<int>(position)};
}

GridCell end_of(const Schedule& schedule, Rank rank) {
  return cell(rank.index(), schedule.orders[rank.index()].size());
}

/// Calls `check(instruction, rank)` for every instruction until it returns the reason of a violation.
template <class Check>
std::optional<Violation> first_violation(const Schedule& schedule, Check&& check) {
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank)
    for (std::size_t k = 0; k < schedule.orders[rank].size(); ++k) {
      const GridCell at = cell(rank, k);
      if (std::optional<std::string> reason = check(schedule.orders[rank][k], at.rank)) return Violation{*reason, at};
    }
  return std::nullopt;
}

/// The rank to which `instruction` belongs instead of `rank`; none if it belongs there.
std::optional<Rank> other_owner(const Schedule& schedule, const Instruction& instruction, Rank rank) {
  const StageId stage = instruction.stage();
  if (is_step_wide(instruction.op()) || schedule.more_pipelines.empty())
    return schedule.copy_on(stage, rank) ? std::nullopt : std::optional(schedule.rank_of(stage));
  for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next())
    if (schedule.rank_of(stage, i) != rank) return schedule.rank_of(stage, i);
  return std::nullopt;
}

std::optional<std::string> misplaced(const Schedule& schedule, const Instruction& instruction, Rank rank) {
  const int stages = schedule.stage_count();
  const int m = schedule.micro_batches;
  if (instruction.stage().value() >= stages)
    return say(to_string(instruction), " names stage ", instruction.stage().value(), ", but the stages are 0..",
               stages - 1);
  if (instruction.first().value() < 0 || instruction.first() > instruction.last() || instruction.last().value() >= m)
    return say(to_string(instruction), " names a micro-batch that does not exist: they are 0..", m - 1);
  if (const auto owner = other_owner(schedule, instruction, rank))
    return say(to_string(instruction), " is on rank ", rank.value(), ", but stage ", instruction.stage().value(),
               " belongs to rank ", owner->value(),
               schedule.more_pipelines.empty() || is_step_wide(instruction.op()) ? "" : " for this micro-batch");
  if (!is_message(instruction.op())) return std::nullopt;
  if (instruction.peer().value() >= stages || !faces_peer(instruction))
    return say(to_string(instruction), " has no stage at its other end: stage ", instruction.stage().value(), " of ",
               stages);
  if (schedule.rank_of(instruction.peer(), instruction.micro_batch()) == rank)
    return say(to_string(instruction), " is a message within rank ", rank.value(), ": stages ",
               instruction.stage().value(), " and ", instruction.peer().value(),
               " are on the same rank and need no message");
  return std::nullopt;
}

/// A schedule with fewer than 1/8 of the F's that its header requires has a wrong header rather than a missing
/// instruction.
constexpr std::int64_t few_instructions = 8;

std::string occurs_twice(const Instruction& instruction) { return say(to_string(instruction), " occurs twice"); }

// Bits for the instructions seen of one micro-batch, on one stage or on one link between ranks.
constexpr std::uint8_t seen_f = 1, seen_b = 2, seen_i = 4, seen_w = 8;

std::uint8_t bit_of(Op op) {
  switch (op) {
    case Op::forward:
    case Op::send_forward: return seen_f;
    case Op::backward:
    case Op::recv_forward: return seen_b;
    case Op::input_grad:
    case Op::send_backward: return seen_i;
    default: return seen_w;
  }
}

/// Marks a compute instruction in `seen`; returns a reason if it, or the B that it is a part of, is marked already.
std::optional<std::string> mark(std::uint8_t& seen, const Instruction& instruction, MicroBatch micro_batch) {
  const std::uint8_t bit = bit_of(instruction.op());
  if (seen & bit)
    return instruction.is_fused() ? say(to_string(instruction), " repeats the W of micro-batch ", micro_batch.value())
                                  : occurs_twice(instruction);
  const std::uint8_t parts = seen_i | seen_w;
  const std::int32_t stage = instruction.stage().value();
  if (((bit & parts) && (seen & seen_b)) || (bit == seen_b && (seen & parts)))
    return say(to_string(instruction), ": B of stage ", stage, ", micro-batch ", micro_batch.value(),
               " is both whole and split (B = I + W)");
  seen |= bit;
  return std::nullopt;
}

std::optional<Violation> missing_compute(const Schedule& schedule, const std::vector<std::uint8_t>& seen) {
  const bool forward_only = schedule.is_forward_only();
  const auto m = static_cast<std::size_t>(schedule.micro_batches);
  for (StageId s(0); s.value() < schedule.stage_count(); s = s.next())
    for (MicroBatch i(0); i.value() < schedule.micro_batches; i = i.next()) {
      const std::uint8_t bits = seen[s.index() * m + i.index()];
      const auto lacks = [&](Op op) {
        const std::string instruction = to_string(Instruction::compute(op, s, i));
        const Rank rank = schedule.rank_of(s, i);
        return Violation{say(instruction, " is missing on rank ", rank.value()), end_of(schedule, rank)};
      };
      if (!(bits & seen_f)) return lacks(Op::forward);
      if (forward_only || (bits & seen_b)) continue;
      if (!(bits & (seen_i | seen_w))) return lacks(Op::backward);
      if (!(bits & seen_i)) return lacks(Op::input_grad);
      if (!(bits & seen_w)) return lacks(Op::weight_grad);
    }
  return std::nullopt;
}

std::optional<Violation> missing_messages(const Schedule& schedule, const Dependencies& dependencies,
                                          const std::vector<std::uint8_t>& seen) {
  const auto m = static_cast<std::size_t>(schedule.micro_batches);
  const bool forward_only = schedule.is_forward_only();
  for (std::size_t lane = 0; lane < dependencies.lane_count(); ++lane) {
    const Link& link = dependencies.link_of_lane(lane);
    for (MicroBatch i(0); i.value() < schedule.micro_batches; i = i.next()) {
      if (!dependencies.crosses(link, i)) continue;
      const std::uint8_t bits = seen[lane * m + i.index()];
      const auto lacks = [&](Op op, StageId at, StageId peer) {
        const Rank rank = schedule.rank_of(at, i);
        return Violation{say(to_string(Instruction::message(op, at, peer, i)), " is missing on rank ", rank.value(),
                             ": link ", to_string(link), " needs it"),
                         end_of(schedule, rank)};
      };
      if (!(bits & seen_f)) return lacks(Op::send_forward, link.from, link.to);
      if (!(bits & seen_b)) return lacks(Op::recv_forward, link.to, link.from);
      if (forward_only || !link.gradient) continue;
      if (!(bits & seen_i)) return lacks(Op::send_backward, link.to, link.from);
      if (!(bits & seen_w)) return lacks(Op::recv_backward, link.from, link.to);
    }
  }
  return std::nullopt;
}

/// Finds a link with too few messages without a table of links times micro-batches, which could be huge.
std::optional<Violation> too_few_messages(const Schedule& schedule, const Dependencies& dependencies) {
  std::vector<std::int64_t> sent(dependencies.lane_count(), 0);
  const auto count = [&](const Instruction& instruction, Rank) -> std::optional<std::string> {
    if (instruction.op() != Op::send_forward) return std::nullopt;
    if (const auto lane = dependencies.lane(instruction.stage(), instruction.peer())) ++sent[*lane];
    return std::nullopt;
  };
  first_violation(schedule, count);
  for (std::size_t lane = 0; lane < sent.size(); ++lane) {
    const Link& link = dependencies.link_of_lane(lane);
    const int needed = dependencies.crossing_count(link);
    if (sent[lane] >= needed) continue;
    // For a link with most of its messages, missing_messages() names the missing one.
    if (sent[lane] > 0 && needed / sent[lane] < 8) continue;
    return Violation{
        say("link ", to_string(link), " from rank ", schedule.rank_of(link.from).value(), " to rank ",
            schedule.rank_of(link.to).value(), " has ", sent[lane], " SEND_F for ", needed, " micro-batches"),
        end_of(schedule, schedule.rank_of(link.from))};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Violation> bad_header(const Schedule& schedule) {
  const int stages = schedule.stage_count();
  if (schedule.micro_batches < 1) return Violation{say("m = ", schedule.micro_batches, ": at least 1 is needed"), {}};
  if (stages < 1 || stages > max_stages)
    return Violation{say("there are ", stages, " stages: 1..", max_stages, " are possible"), {}};
  return bad_placement(schedule);
}

std::optional<Violation> bad_placement(const Schedule& schedule) {
  const auto bad = [](const auto&... parts) { return Violation{say(parts...), {}}; };
  const auto stages = schedule.rank_of_stage.size();
  for (int pipeline = 0; pipeline < schedule.pipeline_count(); ++pipeline) {
    const std::vector<Rank>& ranks = schedule.placement(pipeline);
    if (ranks.size() != stages) return bad("pipeline ", pipeline, " has ", ranks.size(), " stages, not ", stages);
    for (std::size_t s = 0; s < stages; ++s)
      if (ranks[s].value() < 0 || ranks[s].value() >= schedule.rank_count())
        return bad("stage ", s, " is given to rank ", ranks[s].value(), ", but there are ", schedule.rank_count(),
                   " ranks");
  }
  const std::size_t assigned = schedule.more_pipelines.empty() ? 0 : static_cast<std::size_t>(schedule.micro_batches);
  if (schedule.pipeline_of.size() != assigned)
    return bad("the pipelines of ", schedule.pipeline_of.size(), " micro-batches are given, not of ", assigned);
  for (const int pipeline : schedule.pipeline_of)
    if (pipeline < 0 || pipeline >= schedule.pipeline_count())
      return bad("a micro-batch is given to pipeline ", pipeline, ", but there are ", schedule.pipeline_count());
  return std::nullopt;
}

std::optional<Violation> broken_pair(const Order& order, std::size_t rank) {
  const Instruction* half = nullptr;
  const auto broken = [&](const auto&... parts) {
    return Violation{say(to_string(*half), parts...), cell(rank, static_cast<std::size_t>(half - order.data()))};
  };
  for (const Instruction& instruction : order) {
    if (instruction.overlaps_next()) {
      if (half) return broken(" overlaps with ", to_string(instruction), ", which begins another pair");
      half = &instruction;
      if (instruction.op() != Op::forward) return broken(" is the first half of an overlap: that must be F");
    } else if (half && !is_message(instruction.op())) {
      if (instruction.op() != Op::backward && instruction.op() != Op::input_grad)
        return broken(" overlaps with ", to_string(instruction), ": the other half must be B or I");
      half = nullptr;
    }
  }
  if (half) return broken(" overlaps with nothing");
  return std::nullopt;
}

std::optional<Violation> find_misplaced(const Schedule& schedule) {
  if (auto violation = bad_header(schedule)) return violation;
  std::int64_t forwards = 0;
  const auto counted_and_misplaced = [&](const Instruction& instruction, Rank rank) {
    forwards += instruction.op() == Op::forward;
    return misplaced(schedule, instruction, rank);
  };
  if (auto violation = first_violation(schedule, counted_and_misplaced)) return violation;
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank)
    if (auto pair = broken_pair(schedule.orders[rank], rank)) return pair;
  const std::int64_t needed = std::int64_t{schedule.stage_count()} * schedule.micro_batches;
  const auto instructions = static_cast<std::int64_t>(schedule.instruction_count());
  if (instructions < needed / few_instructions)
    return Violation{say("incomplete: ", schedule.stage_count(), " stages x ", schedule.micro_batches,
                         " micro-batches need ", needed, " F, there are ", forwards),
                     {}};
  return std::nullopt;
}

std::optional<Violation> find_incomplete(const Schedule& schedule, const Dependencies& dependencies) {
  const bool lowered = schedule.is_lowered();
  const bool forward_only = schedule.is_forward_only();
  if (lowered)
    if (auto violation = too_few_messages(schedule, dependencies)) return violation;
  const auto m = static_cast<std::size_t>(schedule.micro_batches);
  std::vector<std::uint8_t> computed(static_cast<std::size_t>(schedule.stage_count()) * m, 0);
  std::vector<std::uint8_t> carried(lowered ? dependencies.lane_count() * m : 0, 0);
  const auto pipelines = static_cast<std::size_t>(schedule.pipeline_count());
  std::vector<std::uint8_t> ended(static_cast<std::size_t>(schedule.stage_count()) * pipelines, 0);

  const auto note = [&](const Instruction& instruction, Rank rank) -> std::optional<std::string> {
    const Op op = instruction.op();
    if (is_compute(op)) {
      for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next())
        if (auto reason = mark(computed[instruction.stage().index() * m + i.index()], instruction, i)) return reason;
      return std::nullopt;
    }
    if (is_step_wide(op)) {
      const auto bit = static_cast<std::uint8_t>(1u << (static_cast<unsigned>(op) - static_cast<unsigned>(Op::reduce)));
      const auto copy = static_cast<std::size_t>(schedule.copy_on(instruction.stage(), rank).value());
      std::uint8_t& seen = ended[instruction.stage().index() * pipelines + copy];
      if (seen & bit) return occurs_twice(instruction);
      if (forward_only) return say(to_string(instruction), " has no gradients to work on: there is no B");
      seen |= bit;
      return std::nullopt;
    }
    const Link link = link_of(instruction);
    const auto lane = dependencies.lane(link.from, link.to);
    if (!lane) return say(to_string(instruction), " goes along ", to_string(link), ", which is not a link");
    if (link.gradient && !dependencies.link_of_lane(*lane).gradient)
      return say(to_string(instruction), " carries a gradient along ", to_string(link), ", which has none");
    std::uint8_t& seen = carried[*lane * m + instruction.micro_batch().index()];
    if (seen & bit_of(op)) return occurs_twice(instruction);
    seen |= bit_of(op);
    return std::nullopt;
  };

  if (auto violation = first_violation(schedule, note)) return violation;
  if (auto missing = missing_compute(schedule, computed)) return missing;
  return lowered ? missing_messages(schedule, dependencies, carried) : std::nullopt;
}

bool is_replayable(const Schedule& schedule, const Dependencies& dependencies) {
  if (schedule.is_lowered() && too_few_messages(schedule, dependencies)) return false;
  std::int64_t needs = 0;
  const auto is_stray = [&](const Instruction& instruction, Rank) -> std::optional<std::string> {
    if (is_step_wide(instruction.op())) needs += schedule.micro_batches;
    if (instruction.op() == Op::weight_grad) needs += instruction.micro_batch_count();
    if (!is_message(instruction.op())) return std::nullopt;
    const Link link = link_of(instruction);
    return dependencies.lane(link.from, link.to) ? std::nullopt : std::optional<std::string>("stray");
  };
  const auto stray = first_violation(schedule, is_stray);
  return !stray && needs <= 4 * static_cast<std::int64_t>(schedule.instruction_count());
}

std::optional<Violation> find_disorder(const Schedule& schedule) {
  struct Last {
    std::int32_t forward = -1;
    std::int32_t weight = -1;
  };
  const auto pipelines = static_cast<std::size_t>(schedule.pipeline_count());
  std::vector<Last> last(static_cast<std::size_t>(schedule.stage_count()) * pipelines);
  return first_violation(schedule, [&](const Instruction& instruction, Rank) -> std::optional<std::string> {
    const bool weight = instruction.op() == Op::backward || instruction.op() == Op::weight_grad;
    if (!weight && instruction.op() != Op::forward) return std::nullopt;
    const int pipeline = pipelines == 1 ? 0 : schedule.pipeline_of[instruction.micro_batch().index()];
    Last& of_stage = last[instruction.stage().index() * pipelines + static_cast<std::size_t>(pipeline)];
    std::int32_t& before = weight ? of_stage.weight : of_stage.forward;
    if (instruction.first().value() < before)
      return say(to_string(instruction), " comes after micro-batch ", before, ": ",
                 weight ? "weight gradients must accumulate" : "F must run", " in ascending order on every stage");
    before = instruction.last().value();
    return std::nullopt;
  });
}

}  // namespace penstock
