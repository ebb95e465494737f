// Compares validate() with a plain interpreter, which shares no code with it, on valid schedules with random changes.
#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/schedule/text.h"
#include "penstock/schedule/validate.h"
#include "tests/schedule/plain_interpreter.h"
#include "tests/schedule/random_schedule.h"

namespace penstock::validate_property_test {
namespace {

std::size_t any_index(const Order& order) { return *rc::gen::inRange<std::size_t>(0, order.size()); }

/// Swaps, removes, duplicates, moves or replaces an instruction.
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
    default: std::swap(order[k], order[any_index(order)]);  // more often, as it often gives a valid schedule again
  }
}

TEST(ValidatorProperty, agrees_with_the_interpreter_on_damaged_schedules) {
  EXPECT_TRUE(rc::check("validate(x) == interpret(x)", [] {
    const int stages = *rc::gen::inRange(1, 6);
    const Links links = any_links(stages);
    Schedule schedule = working_schedule(stages, links);
    if (*rc::gen::inRange(0, 2) == 0)
      schedule = lower(schedule, links, {.reduce = *rc::gen::arbitrary<bool>(), .norm = *rc::gen::arbitrary<bool>()});
    RC_ASSERT(Interpreter(schedule, links).works());
    for (int n = *rc::gen::inRange(0, 4); n > 0; --n) damage(schedule);

    const Validation result = validate(schedule, {.links = links, .activation_bound = {}});
    const bool works = Interpreter(schedule, links).works();
    RC_CLASSIFY(works, "works");
    RC_LOG() << write_schedule(schedule) << result.reason;
    RC_ASSERT(result.ok == works);
    RC_ASSERT(result.ok == result.reason.empty());
    if (!result.ok) RC_ASSERT_THROWS_AS(result.require_ok(schedule), ScheduleError);
  }));
}

TEST(ValidatorProperty, accepts_any_list_of_instructions_as_input) {
  EXPECT_TRUE(rc::check("validate(any instructions) ends", [] {
    const Schedule schedule = any_instructions();
    const Validation result = validate(schedule);
    RC_ASSERT(result.ok == result.reason.empty());
    timeline_grid(schedule, {.marked = result.cell, .max_columns = *rc::gen::inRange(0, 9)});
  }));
}

}  // namespace
}  // namespace penstock::validate_property_test
