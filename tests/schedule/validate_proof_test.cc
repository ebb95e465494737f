// Changes valid schedules in one place. validate() must reject exactly the schedules that the plain interpreter
// rejects, and must report the right cell:
//   a removed instruction       the end of the list in which it is missing
//   a duplicated instruction    the second of the two
//   a moved instruction         the instruction on the wrong rank
//   a changed message           the message, or the second of two if it now repeats another one
//   two swapped instructions    the first instruction that breaks the ascending order; in a deadlock, the next
//                               instruction of a rank that waits for itself through other ranks
//   a set overlap mark          the marked instruction, or the first half of its pair; none if it is an F before a B or
//                               I that belongs to no pair
//   a removed overlap mark      none: the schedule is still valid
#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/schedule/text.h"
#include "tests/schedule/plain_interpreter.h"
#include "tests/schedule/random_schedule.h"
#include "tests/support/sanitized.h"

namespace penstock::validate_proof_test {
namespace {

struct Working {
  Schedule schedule;
  Links links;
};

Instruction without_mark(const Instruction& instruction) {
  return Instruction::compute(instruction.op(), instruction.stage(), instruction.micro_batch());
}

/// `schedule` without overlap marks. All changes but those of marks could also break a pair.
Schedule unpaired(Schedule schedule) {
  for (Order& order : schedule.orders)
    for (Instruction& instruction : order)
      if (instruction.overlaps_next()) instruction = without_mark(instruction);
  return schedule;
}

Working any_generated() {
  // With several copies of a stage, an instruction on a wrong rank may belong to another copy.
  std::vector<ScheduleGenerator> known(generators().begin(), generators().end());
  std::erase_if(known, [](const ScheduleGenerator& one) { return !one.single_owner; });
  const ScheduleGenerator& generator = known[*rc::gen::inRange<std::size_t>(0, known.size())];
  const ScheduleShape shape{.ranks = *rc::gen::inRange(2, 5),
                            .micro_batches = *rc::gen::inRange(2, 6),
                            .chunks = *rc::gen::inRange(generator.min_chunks, std::min(generator.max_chunks, 3) + 1)};
  const Schedule schedule = unpaired(generate(generator.name, shape));
  return {schedule, chain(schedule.stage_count())};
}

/// A random or a generated schedule, with at least two ranks and two micro-batches.
Working any_working(bool lowered) {
  const int stages = *rc::gen::inRange(2, 6);
  const Links links = any_links(stages);
  Working working{working_schedule(stages, links), links};
  const std::set<Rank> used(working.schedule.rank_of_stage.begin(), working.schedule.rank_of_stage.end());
  if (working.schedule.micro_batches < 2 || used.size() < 2 || *rc::gen::arbitrary<bool>()) working = any_generated();
  if (lowered)
    working.schedule = lower(working.schedule, working.links,
                             {.reduce = *rc::gen::arbitrary<bool>(), .norm = *rc::gen::arbitrary<bool>()});
  return working;
}

/// The position of a random instruction for which `which` is true.
template <class Which>
GridCell any_cell(const Schedule& schedule, Which&& which) {
  std::vector<GridCell> cells;
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank)
    for (std::size_t k = 0; k < schedule.orders[rank].size(); ++k)
      if (which(schedule.orders[rank][k]))
        cells.push_back({Rank(static_cast<std::int32_t>(rank)), static_cast<int>(k)});
  return cells[*rc::gen::inRange<std::size_t>(0, cells.size())];
}

Order& order_at(Schedule& schedule, const GridCell& cell) { return schedule.orders[cell.rank.index()]; }
Order::iterator instruction_at(Schedule& schedule, const GridCell& cell) {
  return order_at(schedule, cell).begin() + cell.position;
}

/// The result of validate(); asserts that the interpreter agrees.
Validation validated(const Working& working) {
  const Validation result = validate(working.schedule, {.links = working.links, .activation_bound = {}});
  RC_LOG() << write_schedule(working.schedule) << result.reason;
  RC_ASSERT(result.ok == Interpreter(working.schedule, working.links).works());
  return result;
}

void assert_names(const Validation& result, const GridCell& cell) {
  RC_ASSERT(!result.ok);
  RC_ASSERT(result.cell.has_value());
  RC_ASSERT(result.cell->rank == cell.rank);
  RC_ASSERT(result.cell->position == cell.position);
}

bool is_message(const Instruction& instruction) { return is_send(instruction.op()) || is_receive(instruction.op()); }

TEST(ValidateProof, names_the_place_of_a_missing_instruction) {
  EXPECT_TRUE(rc::check("drop", [] {
    Working working = any_working(*rc::gen::arbitrary<bool>());
    const GridCell cell =
        any_cell(working.schedule, [](const Instruction& instruction) { return !is_step_wide(instruction.op()); });
    const Instruction instruction = *instruction_at(working.schedule, cell);
    order_at(working.schedule, cell).erase(instruction_at(working.schedule, cell));
    const Validation result = validated(working);
    assert_names(result, {cell.rank, static_cast<int>(order_at(working.schedule, cell).size())});
    const Instruction named = is_message(instruction)
                                  ? instruction
                                  : Instruction::compute(instruction.op(), instruction.stage(), instruction.first());
    RC_ASSERT(result.reason.starts_with(to_string(named) + " is missing"));
  }));
}

TEST(ValidateProof, names_the_second_of_duplicated_instructions) {
  EXPECT_TRUE(rc::check("duplicate", [] {
    Working working = any_working(*rc::gen::arbitrary<bool>());
    const GridCell cell = any_cell(working.schedule, [](const Instruction&) { return true; });
    const Instruction instruction = *instruction_at(working.schedule, cell);
    Order& order = order_at(working.schedule, cell);
    const int place = *rc::gen::inRange(0, static_cast<int>(order.size()) + 1);
    order.insert(order.begin() + place, instruction);
    assert_names(validated(working), {cell.rank, place > cell.position ? place : cell.position + 1});
  }));
}

TEST(ValidateProof, names_an_instruction_on_the_wrong_rank) {
  EXPECT_TRUE(rc::check("move", [] {
    Working working = any_working(*rc::gen::arbitrary<bool>());
    const auto ranks = static_cast<std::int32_t>(working.schedule.orders.size());
    const GridCell cell = any_cell(working.schedule, [](const Instruction&) { return true; });
    const Instruction instruction = *instruction_at(working.schedule, cell);
    order_at(working.schedule, cell).erase(instruction_at(working.schedule, cell));
    const Rank rank((cell.rank.value() + *rc::gen::inRange(1, ranks)) % ranks);
    Order& order = working.schedule.orders[rank.index()];
    const int place = *rc::gen::inRange(0, static_cast<int>(order.size()) + 1);
    order.insert(order.begin() + place, instruction);
    assert_names(validated(working), {rank, place});
  }));
}

TEST(ValidateProof, names_a_message_without_a_counterpart) {
  EXPECT_TRUE(rc::check("break a pair", [] {
    Working working = any_working(true);
    const GridCell cell = any_cell(working.schedule, is_message);
    const Instruction instruction = *instruction_at(working.schedule, cell);
    std::vector<Instruction> others;
    for (MicroBatch i(0); i.value() < working.schedule.micro_batches; i = i.next())
      others.push_back(Instruction::message(instruction.op(), instruction.stage(), instruction.peer(), i));
    for (StageId peer(0); peer.value() < working.schedule.stage_count(); peer = peer.next())
      others.push_back(Instruction::message(instruction.op(), instruction.stage(), peer, instruction.micro_batch()));
    std::erase_if(others, [&](const Instruction& other) { return other == instruction || !faces_peer(other); });
    const Instruction broken = *rc::gen::elementOf(others);
    Order& order = order_at(working.schedule, cell);
    const auto twin = static_cast<int>(std::find(order.begin(), order.end(), broken) - order.begin());
    *instruction_at(working.schedule, cell) = broken;
    const bool repeats = twin < static_cast<int>(order.size());
    assert_names(validated(working), {cell.rank, repeats ? std::max(twin, cell.position) : cell.position});
  }));
}

/// Asserts the agreement of validate() and the interpreter after a swap of two instructions of one rank.
void expect_agreement(const Working& working) {
  Interpreter interpreter(working.schedule, working.links);
  const Validation result = validate(working.schedule, {.links = working.links, .activation_bound = {}});
  ASSERT_EQ(result.ok, interpreter.works()) << write_schedule(working.schedule) << result.reason;
  if (result.ok) return;
  ASSERT_TRUE(result.cell.has_value()) << result.reason;
  if (const auto disorder = interpreter.first_disorder()) {
    ASSERT_EQ(result.cell->rank, disorder->rank) << result.reason;
    ASSERT_EQ(result.cell->position, disorder->position) << result.reason;
  } else {
    ASSERT_TRUE(interpreter.waits_for_itself(*result.cell)) << write_schedule(working.schedule) << result.reason;
  }
}

TEST(ValidateProof, names_an_instruction_of_the_deadlock_after_a_swap) {
  EXPECT_TRUE(rc::check("swap", [] {
    Working working = any_working(*rc::gen::arbitrary<bool>());
    const GridCell cell = any_cell(working.schedule, [](const Instruction&) { return true; });
    Order& order = order_at(working.schedule, cell);
    std::swap(*instruction_at(working.schedule, cell), order[*rc::gen::inRange<std::size_t>(0, order.size())]);
    expect_agreement(working);
    RC_ASSERT(!testing::Test::HasFatalFailure());
  }));
}

TEST(ValidateProof, agrees_with_the_interpreter_on_every_swap_in_small_schedules) {
  for (const ScheduleGenerator& generator : generators())
    for (int v = generator.min_chunks; v <= std::min(generator.max_chunks, 2); ++v) {
      const ScheduleShape shape{.ranks = generator.single_owner ? 3 : 4, .micro_batches = 3, .chunks = v};
      Working working{unpaired(lower(generate(generator.name, shape))), chain(shape.ranks * v)};
      for (Order& order : working.schedule.orders)
        for (std::size_t a = 0; a < order.size(); ++a)
          for (std::size_t b = 0; b < a; b += loop_step) {
            std::swap(order[a], order[b]);
            expect_agreement(working);
            if (HasFatalFailure()) return;
            std::swap(order[a], order[b]);
          }
    }
}

/// The instruction that is invalid if the one at `cell` is marked; none if that makes a valid pair.
std::optional<GridCell> broken_by_mark(const Order& order, const GridCell& cell) {
  const auto at = static_cast<std::size_t>(cell.position);
  for (std::size_t k = at; k-- > 0;) {  // looks for the first half of a pair to which the instruction belongs
    if (order[k].overlaps_next()) return GridCell{cell.rank, static_cast<int>(k)};
    if (!is_message(order[k])) break;
  }
  std::size_t next = at + 1;
  while (next < order.size() && is_message(order[next])) ++next;
  const bool is_pair = order[at].op() == Op::forward && next < order.size() &&
                       (order[next].op() == Op::backward || order[next].op() == Op::input_grad);
  return is_pair ? std::nullopt : std::optional(cell);
}

/// The same after the overlap mark at `cell` was toggled.
void expect_agreement_after_one_mark(Working working, const GridCell& cell) {
  Instruction& instruction = *instruction_at(working.schedule, cell);
  const bool clears = instruction.overlaps_next();
  const auto broken = clears ? std::nullopt : broken_by_mark(order_at(working.schedule, cell), cell);
  instruction = clears ? without_mark(instruction) : instruction.overlapping_next();
  const Validation result = validate(working.schedule, {.links = working.links, .activation_bound = {}});
  const std::string about = say(to_string(instruction), " of rank ", cell.rank.value(), ": ", result.reason);
  ASSERT_EQ(result.ok, Interpreter(working.schedule, working.links).works()) << about;
  ASSERT_EQ(result.ok, !broken) << about;
  if (!broken) return;
  ASSERT_TRUE(result.cell.has_value()) << about;
  ASSERT_EQ(result.cell->rank, broken->rank) << about;
  ASSERT_EQ(result.cell->position, broken->position) << about;
}

TEST(ValidateProof, names_the_instruction_with_an_invalid_overlap_mark) {
  EXPECT_TRUE(rc::check("mark", [] {
    Working working = any_working(false);
    overlap_some(working.schedule);
    if (*rc::gen::arbitrary<bool>()) working.schedule = lower(working.schedule, working.links);
    const GridCell cell = any_cell(working.schedule, [](const Instruction&) { return true; });
    RC_LOG() << write_schedule(working.schedule);
    expect_agreement_after_one_mark(working, cell);
    RC_ASSERT(!testing::Test::HasFatalFailure());
  }));
}

/// Generated schedules and one from torch.
std::vector<Schedule> schedules_with_pairs() {
  std::vector<Schedule> schedules{load_schedule(TESTS_FOLDER "/schedule/torch_csv/dualpipev_p4_m8_v2_compute.csv")};
  for (const int m : {4, 7}) schedules.push_back(generate("dualpipe-v", {.ranks = 3, .micro_batches = m, .chunks = 2}));
  return schedules;
}

TEST(ValidateProof, agrees_with_the_interpreter_on_every_overlap_mark) {
  for (const Schedule& instructions : schedules_with_pairs())
    for (const Schedule& schedule : {instructions, lower(instructions)}) {
      ASSERT_NE(schedule, unpaired(schedule)) << schedule.name;
      for (Rank rank(0); rank.value() < schedule.rank_count(); rank = rank.next())
        for (int k = 0; k < static_cast<int>(schedule.orders[rank.index()].size()); ++k) {
          expect_agreement_after_one_mark({schedule, chain(schedule.stage_count())}, {rank, k});
          if (HasFatalFailure()) return;
        }
    }
}

}  // namespace
}  // namespace penstock::validate_proof_test
