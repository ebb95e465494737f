// Executes one rank's list. Torch-free: a template over its *handler*, so that the loop that trains networks is the loop
// that runs under TSAN with integers.
//
// Handler are any type with
//   void begin(const Instruction&)            about to start; told to peers as this rank's position
//   Arrival receive(const Instruction&)       waits for the message of a RECV; returns when that came
//   void perform(const Instruction&)          does anything but a RECV
//
// A RECV in the list says from where on a message may be expected; the compute instruction that needs it waits for it.
// So a list that posts its receives early (as torch's do) neither stalls nor deadlocks because of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/schedule/dependencies.h"
#include "penstock/trace/recorder.h"

namespace penstock {

/// When a message came to the rank that asked for it, as far as that is known; 0 is unknown.
struct Arrival {
  std::int64_t arrived_ns = 0;  // on this rank's clock: since then it could have been taken
  std::int64_t transit_ns = 0;  // how long it was on its way before
};

/// One rank's list, with the receives that each instruction waits for looked up beforehand.
class Program {
 public:
  struct Action {
    Instruction instruction;
    std::uint32_t first_receive = 0;
    std::uint32_t end_receive = 0;
  };

  /// Throws ScheduleError when an instruction needs a message for which the order has no RECV.
  Program(const Order& order, const Dependencies& dependencies) {
    std::unordered_map<std::size_t, Instruction> posted;
    for (const Instruction& instruction : order) {
      if (is_receive(instruction.op())) {
        dependencies.for_each_given(
            instruction, [&](const Event& event) { posted.emplace(dependencies.index(event), instruction); });
        continue;
      }
      Action action{instruction, static_cast<std::uint32_t>(receives_.size()), 0};
      dependencies.for_each_predecessor(instruction, [&](const Event& event) {
        if (event.kind != EventKind::arrived_forward && event.kind != EventKind::arrived_backward) return;
        const auto found = posted.find(dependencies.index(event));
        require<ScheduleError>(found != posted.end(), to_string(instruction), " needs ", to_string(event),
                               ", but no RECV comes before it");
        receives_.push_back(found->second);
      });
      action.end_receive = static_cast<std::uint32_t>(receives_.size());
      actions_.push_back(action);
    }
  }

  const std::vector<Action>& actions() const { return actions_; }
  const Instruction& receive(std::uint32_t index) const { return receives_[index]; }

 private:
  std::vector<Action> actions_;
  std::vector<Instruction> receives_;
};

constexpr Activity activity_of(Op op) {
  if (is_compute(op)) return Activity::compute;
  return is_step_wide(op) ? Activity::update : Activity::communicate;
}

/// Runs one action and notes its spans. `begin` is when the one before it ended, and becomes when this one did.
template <class Handler>
void execute_action(const Program& program, const Program::Action& action, Handler& handler, Recorder& recorder,
                    std::int64_t& begin) {
  handler.begin(action.instruction);
  for (std::uint32_t i = action.first_receive; i < action.end_receive; ++i) {
    const Arrival message = handler.receive(program.receive(i));
    const std::int64_t taken = now_ns();
    const std::int64_t since = message.arrived_ns > 0 ? std::max(begin, message.arrived_ns) : taken;
    recorder.note({program.receive(i), Activity::wait, begin, taken, message.transit_ns,
                   std::max<std::int64_t>(0, taken - since)});
    begin = taken;
  }
  handler.perform(action.instruction);
  const std::int64_t end = now_ns();
  recorder.note({action.instruction, activity_of(action.instruction.op()), begin, end, 0, 0});
  begin = end;
}

/// Runs `program` to its end, noting every span. An exception of the handler ends it there.
template <class Handler>
void execute(const Program& program, Handler& handler, Recorder& recorder) {
  std::int64_t begin = now_ns();
  for (const Program::Action& action : program.actions()) execute_action(program, action, handler, recorder, begin);
}

}  // namespace penstock
