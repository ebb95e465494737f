// The validate against a plain interpreter that shares no code with it. Schedules that work are damaged at random and must
// be validated alike.
#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/schedule/text.h"
#include "penstock/schedule/validate.h"
#include "tests/schedule/plain_interpreter.h"
#include "tests/schedule/random_schedule.h"

namespace penstock {
namespace {

std::size_t any_index(const Order& order) { return *rc::gen::inRange<std::size_t>(0, order.size()); }

/// Swaps, drops, doubles or moves one instruction.
void damage(Schedule& schedule) {
  Order& order = schedule.orders[*rc::gen::inRange<std::size_t>(0, schedule.orders.size())];
  if (order.empty()) return;
  const auto at = [&](std::size_t k) { return order.begin() + static_cast<std::ptrdiff_t>(k); };
  const std::size_t k = any_index(order);
  switch (*rc::gen::inRange(0, 7)) {
    case 0: order.erase(at(k)); break;
    case 1: order.insert(at(any_index(order)), Instruction(order[k])); break;
    case 2: {
      const Instruction instruction = order[k];
      order.erase(at(k));
      schedule.orders[*rc::gen::inRange<std::size_t>(0, schedule.orders.size())].push_back(instruction);
      break;
    }
    case 3: order[k] = any_instruction(schedule.stage_count(), schedule.micro_batches); break;
    default: std::swap(order[k], order[any_index(order)]);  // the damage that most often leaves it working
  }
}

TEST(Validator, agrees_with_a_plain_interpreter_on_damaged_schedules) {
  EXPECT_TRUE(rc::check("validate(x) == interpret(x)", [] {
    const int stages = *rc::gen::inRange(1, 6);
    const Links links = any_links(stages);
    Schedule schedule = working_schedule(stages, links);
    if (*rc::gen::inRange(0, 2) == 0)
      schedule = lower(schedule, links, {.reduce = *rc::gen::arbitrary<bool>(), .norm = *rc::gen::arbitrary<bool>()});
    RC_ASSERT(Interpreter(schedule, links).works());
    for (int n = *rc::gen::inRange(0, 4); n > 0; --n) damage(schedule);

    const Validation verdict = validate(schedule, {.links = links, .activation_bound = {}});
    const bool works = Interpreter(schedule, links).works();
    RC_CLASSIFY(works, "works");
    RC_LOG() << write_schedule(schedule) << verdict.reason;
    RC_ASSERT(verdict.ok == works);
    RC_ASSERT(verdict.ok == verdict.reason.empty());
    if (!verdict.ok) RC_ASSERT_THROWS_AS(verdict.require_ok(schedule), ScheduleError);
  }));
}

TEST(Validator, words_in_any_order_are_judged_without_harm) {
  EXPECT_TRUE(rc::check("validate(any instructions) ends", [] {
    const Schedule schedule = any_instructions();
    const Validation verdict = validate(schedule);
    RC_ASSERT(verdict.ok == verdict.reason.empty());
    timeline_grid(schedule, {.marked = verdict.cell, .max_columns = *rc::gen::inRange(0, 9)});
  }));
}

}  // namespace
}  // namespace penstock
