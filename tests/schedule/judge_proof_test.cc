// One harm at a time, done to schedules that work: the judge rejects exactly what the plain interpreter rejects, and
// names the right cell. Right is
//   a word that is gone         the end of the list where it is missing, and the word
//   a word that is there twice  the later of the two
//   a word on another rank      that word
//   a message that was changed  that word, or the later of two where it now repeats another
//   two words that swapped      the first word that is out of the ascending order; in a deadlock a word that its rank
//                               stands at and that waits, by way of the others, for itself
//   an overlap mark, set        that word, or the first half of the pair that it stands in; nothing where a B or I of
//                               no pair comes after an F
//   an overlap mark, cleared    nothing: what was a pair are two words like others
#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/schedule/text.h"
#include "tests/schedule/plain_interpreter.h"
#include "tests/schedule/random_schedule.h"

namespace penstock {
namespace {

struct Working {
  Schedule schedule;
  Links links;
};

Instruction without_mark(const Instruction& word) {
  return Instruction::compute(word.op(), word.stage(), word.micro_batch());
}

/// Any other harm than one to their marks may tear a pair apart, too: for those, all words are words like others.
Schedule unpaired(Schedule schedule) {
  for (Order& order : schedule.orders)
    for (Instruction& word : order)
      if (word.overlaps_next()) word = without_mark(word);
  return schedule;
}

Working any_generated() {
  const Generator& generator = generators()[*rc::gen::inRange<std::size_t>(0, generators().size())];
  const ScheduleShape shape{.ranks = *rc::gen::inRange(2, 5),
                            .micro_batches = *rc::gen::inRange(2, 6),
                            .chunks = *rc::gen::inRange(generator.min_chunks, std::min(generator.max_chunks, 3) + 1)};
  const Schedule schedule = unpaired(generate(generator.name, shape));
  return {schedule, chain(schedule.stage_count())};
}

/// A random schedule, or a generator's; of two ranks and two micro-batches or more, so that there is what to harm.
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

/// Any word of any rank; `which` says of what kind.
template <class Which>
BoardCell any_cell(const Schedule& schedule, Which&& which) {
  std::vector<BoardCell> cells;
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank)
    for (std::size_t k = 0; k < schedule.orders[rank].size(); ++k)
      if (which(schedule.orders[rank][k]))
        cells.push_back({Rank(static_cast<std::int32_t>(rank)), static_cast<int>(k)});
  return cells[*rc::gen::inRange<std::size_t>(0, cells.size())];
}

Order& order_at(Schedule& schedule, const BoardCell& cell) { return schedule.orders[cell.rank.index()]; }
Order::iterator word_at(Schedule& schedule, const BoardCell& cell) {
  return order_at(schedule, cell).begin() + cell.position;
}

/// The verdict, which the interpreter shares.
Verdict judged(const Working& working) {
  const Verdict verdict = judge(working.schedule, {.links = working.links, .activation_bound = {}});
  RC_LOG() << write_schedule(working.schedule) << verdict.reason;
  RC_ASSERT(verdict.ok == Interpreter(working.schedule, working.links).works());
  return verdict;
}

void assert_names(const Verdict& verdict, const BoardCell& cell) {
  RC_ASSERT(!verdict.ok);
  RC_ASSERT(verdict.cell.has_value());
  RC_ASSERT(verdict.cell->rank == cell.rank);
  RC_ASSERT(verdict.cell->position == cell.position);
}

bool is_message(const Instruction& word) { return is_send(word.op()) || is_receive(word.op()); }

TEST(JudgeProof, names_where_a_dropped_word_is_missing) {
  EXPECT_TRUE(rc::check("drop", [] {
    Working working = any_working(*rc::gen::arbitrary<bool>());
    const BoardCell cell = any_cell(working.schedule, [](const Instruction& word) { return !is_step_wide(word.op()); });
    const Instruction word = *word_at(working.schedule, cell);
    order_at(working.schedule, cell).erase(word_at(working.schedule, cell));
    const Verdict verdict = judged(working);
    assert_names(verdict, {cell.rank, static_cast<int>(order_at(working.schedule, cell).size())});
    const Instruction named = is_message(word) ? word : Instruction::compute(word.op(), word.stage(), word.first());
    RC_ASSERT(verdict.reason.starts_with(to_string(named) + " is missing"));
  }));
}

TEST(JudgeProof, names_the_later_of_a_word_that_is_there_twice) {
  EXPECT_TRUE(rc::check("duplicate", [] {
    Working working = any_working(*rc::gen::arbitrary<bool>());
    const BoardCell cell = any_cell(working.schedule, [](const Instruction&) { return true; });
    const Instruction word = *word_at(working.schedule, cell);
    Order& order = order_at(working.schedule, cell);
    const int place = *rc::gen::inRange(0, static_cast<int>(order.size()) + 1);
    order.insert(order.begin() + place, word);
    assert_names(judged(working), {cell.rank, place > cell.position ? place : cell.position + 1});
  }));
}

TEST(JudgeProof, names_the_word_on_a_rank_that_is_not_its_own) {
  EXPECT_TRUE(rc::check("move", [] {
    Working working = any_working(*rc::gen::arbitrary<bool>());
    const auto ranks = static_cast<std::int32_t>(working.schedule.orders.size());
    const BoardCell cell = any_cell(working.schedule, [](const Instruction&) { return true; });
    const Instruction word = *word_at(working.schedule, cell);
    order_at(working.schedule, cell).erase(word_at(working.schedule, cell));
    const Rank rank((cell.rank.value() + *rc::gen::inRange(1, ranks)) % ranks);
    Order& order = working.schedule.orders[rank.index()];
    const int place = *rc::gen::inRange(0, static_cast<int>(order.size()) + 1);
    order.insert(order.begin() + place, word);
    assert_names(judged(working), {rank, place});
  }));
}

TEST(JudgeProof, names_a_message_whose_other_end_does_not_know_it) {
  EXPECT_TRUE(rc::check("break a pair", [] {
    Working working = any_working(true);
    const BoardCell cell = any_cell(working.schedule, is_message);
    const Instruction word = *word_at(working.schedule, cell);
    std::vector<Instruction> others;
    for (MicroBatch i(0); i.value() < working.schedule.micro_batches; i = i.next())
      others.push_back(Instruction::message(word.op(), word.stage(), word.peer(), i));
    for (StageId peer(0); peer.value() < working.schedule.stage_count(); peer = peer.next())
      others.push_back(Instruction::message(word.op(), word.stage(), peer, word.micro_batch()));
    std::erase_if(others, [&](const Instruction& other) { return other == word || !faces_peer(other); });
    const Instruction broken = *rc::gen::elementOf(others);
    Order& order = order_at(working.schedule, cell);
    const auto twin = static_cast<int>(std::find(order.begin(), order.end(), broken) - order.begin());
    *word_at(working.schedule, cell) = broken;
    const bool repeats = twin < static_cast<int>(order.size());
    assert_names(judged(working), {cell.rank, repeats ? std::max(twin, cell.position) : cell.position});
  }));
}

/// After two words of one rank have swapped.
void expect_judged_alike(const Working& working) {
  Interpreter interpreter(working.schedule, working.links);
  const Verdict verdict = judge(working.schedule, {.links = working.links, .activation_bound = {}});
  ASSERT_EQ(verdict.ok, interpreter.works()) << write_schedule(working.schedule) << verdict.reason;
  if (verdict.ok) return;
  ASSERT_TRUE(verdict.cell.has_value()) << verdict.reason;
  if (const auto disorder = interpreter.first_disorder()) {
    ASSERT_EQ(verdict.cell->rank, disorder->rank) << verdict.reason;
    ASSERT_EQ(verdict.cell->position, disorder->position) << verdict.reason;
  } else {
    ASSERT_TRUE(interpreter.waits_for_itself(*verdict.cell)) << write_schedule(working.schedule) << verdict.reason;
  }
}

TEST(JudgeProof, names_what_a_swap_brings_to_a_stop) {
  EXPECT_TRUE(rc::check("swap", [] {
    Working working = any_working(*rc::gen::arbitrary<bool>());
    const BoardCell cell = any_cell(working.schedule, [](const Instruction&) { return true; });
    Order& order = order_at(working.schedule, cell);
    std::swap(*word_at(working.schedule, cell), order[*rc::gen::inRange<std::size_t>(0, order.size())]);
    expect_judged_alike(working);
    RC_ASSERT(!testing::Test::HasFatalFailure());
  }));
}

TEST(JudgeProof, agrees_on_every_swap_in_small_schedules) {
  for (const Generator& generator : generators())
    for (int v = generator.min_chunks; v <= std::min(generator.max_chunks, 2); ++v) {
      const ScheduleShape shape{.ranks = 3, .micro_batches = 3, .chunks = v};
      Working working{unpaired(lower(generate(generator.name, shape))), chain(3 * v)};
      for (Order& order : working.schedule.orders)
        for (std::size_t a = 0; a < order.size(); ++a)
          for (std::size_t b = 0; b < a; ++b) {
            std::swap(order[a], order[b]);
            expect_judged_alike(working);
            if (HasFatalFailure()) return;
            std::swap(order[a], order[b]);
          }
    }
}

/// The word that marking the one at `cell` harms; none where that makes a pair.
std::optional<BoardCell> harmed_by_mark(const Order& order, const BoardCell& cell) {
  const auto at = static_cast<std::size_t>(cell.position);
  for (std::size_t k = at; k-- > 0;) {  // behind the first half of a pair: its other half, or a message between
    if (order[k].overlaps_next()) return BoardCell{cell.rank, static_cast<int>(k)};
    if (!is_message(order[k])) break;
  }
  std::size_t next = at + 1;
  while (next < order.size() && is_message(order[next])) ++next;
  const bool is_pair = order[at].op() == Op::forward && next < order.size() &&
                       (order[next].op() == Op::backward || order[next].op() == Op::input_grad);
  return is_pair ? std::nullopt : std::optional(cell);
}

/// After one mark of `working`, at `cell`, is set where there was none and else cleared.
void expect_judged_alike_but_for_one_mark(Working working, const BoardCell& cell) {
  Instruction& word = *word_at(working.schedule, cell);
  const bool clears = word.overlaps_next();
  const auto harmed = clears ? std::nullopt : harmed_by_mark(order_at(working.schedule, cell), cell);
  word = clears ? without_mark(word) : word.overlapping_next();
  const Verdict verdict = judge(working.schedule, {.links = working.links, .activation_bound = {}});
  const std::string about = say(to_string(word), " of rank ", cell.rank.value(), ": ", verdict.reason);
  ASSERT_EQ(verdict.ok, Interpreter(working.schedule, working.links).works()) << about;
  ASSERT_EQ(verdict.ok, !harmed) << about;
  if (!harmed) return;
  ASSERT_TRUE(verdict.cell.has_value()) << about;
  ASSERT_EQ(verdict.cell->rank, harmed->rank) << about;
  ASSERT_EQ(verdict.cell->position, harmed->position) << about;
}

TEST(JudgeProof, names_the_word_whose_mark_begins_no_pair) {
  EXPECT_TRUE(rc::check("mark", [] {
    Working working = any_working(false);
    overlap_some(working.schedule);
    if (*rc::gen::arbitrary<bool>()) working.schedule = lower(working.schedule, working.links);
    const BoardCell cell = any_cell(working.schedule, [](const Instruction&) { return true; });
    RC_LOG() << write_schedule(working.schedule);
    expect_judged_alike_but_for_one_mark(working, cell);
    RC_ASSERT(!testing::Test::HasFatalFailure());
  }));
}

/// Generated ones, and torch's.
std::vector<Schedule> schedules_with_pairs() {
  std::vector<Schedule> schedules{load_schedule(FIXTURES "/torch_csv/dualpipev_p4_m8_v2_compute.csv")};
  for (const int m : {4, 7}) schedules.push_back(generate("dualpipe-v", {.ranks = 3, .micro_batches = m, .chunks = 2}));
  return schedules;
}

TEST(JudgeProof, agrees_on_every_mark_of_schedules_with_pairs) {
  for (const Schedule& words : schedules_with_pairs())
    for (const Schedule& schedule : {words, lower(words)}) {
      ASSERT_NE(schedule, unpaired(schedule)) << schedule.name;
      for (Rank rank(0); rank.value() < schedule.rank_count(); rank = rank.next())
        for (int k = 0; k < static_cast<int>(schedule.orders[rank.index()].size()); ++k) {
          expect_judged_alike_but_for_one_mark({schedule, chain(schedule.stage_count())}, {rank, k});
          if (HasFatalFailure()) return;
        }
    }
}

}  // namespace
}  // namespace penstock
