// The functions under test of the fuzzers of the two schedule formats. The test that replays their corpus calls them
// too. They throw if a property does not hold. Refusing the input is correct.
#pragma once

#include <string_view>

#include "penstock/base/error.h"
#include "penstock/schedule/schedule.h"

namespace penstock {

/// Validates, simulates, draws and writes a schedule that was read from text. None of them may fail unexpectedly.
inline void use_schedule(const Schedule& schedule) {
  require<InternalError>(read_schedule(write_schedule(schedule)) == schedule, "the text form does not read back");
  const Validation result = validate(schedule);
  require<InternalError>(result.ok == result.reason.empty(), "a result without a reason");
  timeline_grid(schedule, {.marked = result.cell, .max_columns = 40});
  try {
    simulate(schedule, {.forward = {1}, .input_grad = {2}, .weight_grad = {1}, .update = {0}, .message = 0.5});
  } catch (const ScheduleError&) {
    require<InternalError>(!result.ok, "the schedule is valid, but cannot be simulated");
  }
  for (const bool messages : {false, true}) try {
      read_torch_csv(write_torch_csv(schedule, {.messages = messages}));
    } catch (const Misuse&) {  // skip links, idle ranks, instructions that are missing
    }
  if (!result.ok) return;
  result.require_ok(schedule);
  const Links links = links_of(schedule);
  const Schedule again = lower(strip(schedule), links, {.reduce = true, .norm = true});
  const int posts = least_posts(again, links);
  if (posts == 0) return validate(again, {.links = links, .activation_bound = {}}).require_ok(again);
  validate(again, {.links = links, .activation_bound = {}, .posts = posts}).require_ok(again);
  const bool needs_all =
      posts == 1 || !validate(again, {.links = links, .activation_bound = {}, .posts = posts - 1}).ok;
  require<InternalError>(needs_all, "fewer posts than least_posts() suffice");
}

inline void try_schedule(std::string_view text) {
  Schedule schedule;
  try {
    schedule = read_schedule(text);
  } catch (const DataError&) {
    return;
  }
  require<InternalError>(write_schedule(schedule) == text, "two texts for one schedule");
  use_schedule(schedule);
}

inline void try_torch_csv(std::string_view text) {
  CsvSchedule csv;
  try {
    csv = read_torch_csv(text);
  } catch (const DataError&) {
    return;
  }
  use_schedule(csv.schedule);
}

}  // namespace penstock
