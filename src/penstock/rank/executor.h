// The loop that executes one rank's instructions, and the store of its live activations. Torch-free: templates over the
// handler and the activations, so that the loop that trains networks also runs under the thread sanitizer with
// integers.
//
// A handler is any type with
//   void begin(const Instruction&)            called before each instruction; reports this rank's position to peers
//   Arrival receive(const Instruction&)       waits for the message of a RECV; returns when it arrived
//   void perform(const Instruction&)          executes any instruction other than a RECV
//
// A RECV only marks the place from which on its message may be expected. The compute instruction that needs the message
// waits for it, so that a list that posts its receives early (as torch's schedules do) neither stalls nor deadlocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/ids.h"
#include "penstock/schedule/dependencies.h"
#include "penstock/trace/recorder.h"
#include "penstock/transport/tag.h"

namespace penstock::rank {

/// The position that a rank reports to its peers before `instruction`, such as "0F5". Allocates no memory.
inline Position position_of(const Instruction& instruction) noexcept {
  const InstructionText text = instruction_text(instruction);
  Position position;
  static_assert(sizeof(position.instruction) == sizeof(text.letters));
  std::memcpy(position.instruction, text.letters.data(), sizeof(position.instruction));
  return position;
}

/// When a message arrived; 0 where unknown.
struct Arrival {
  std::int64_t arrived_ns = 0;  // on this rank's clock; since then it could have been received
  std::int64_t transit_ns = 0;  // the time between sending and arrival
};

/// One rank's instructions, with the receives that each of them waits for. Immutable.
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

/// The clock of a rank that computes on the CPU.
struct HostClock {
  std::int64_t operator()() const { return now_ns(); }
};

/// Executes one action and notes its spans. `begin` is the end of the action before it, and becomes the end of this
/// one. `spans` has note(const Span&), as Recorder has it; `clock` is a function that returns the time.
template <class Handler, class Spans, class Clock = HostClock>
void execute_action(const Program& program, const Program::Action& action, Handler& handler, Spans& spans,
                    std::int64_t& begin, const Clock& clock = {}) {
  handler.begin(action.instruction);
  for (std::uint32_t i = action.first_receive; i < action.end_receive; ++i) {
    const Arrival message = handler.receive(program.receive(i));
    const std::int64_t taken = clock();
    const std::int64_t since = message.arrived_ns > 0 ? std::max(begin, message.arrived_ns) : taken;
    spans.note({program.receive(i), Activity::wait, begin, taken, message.transit_ns,
                std::max<std::int64_t>(0, taken - since)});
    begin = taken;
  }
  handler.perform(action.instruction);
  const std::int64_t end = clock();
  spans.note({action.instruction, activity_of(action.instruction.op()), begin, end, 0, 0});
  begin = end;
}

/// Executes `program` and notes every span. An exception of the handler propagates and ends the execution.
template <class Handler, class Spans, class Clock = HostClock>
void execute(const Program& program, Handler& handler, Spans& spans, const Clock& clock = {}) {
  std::int64_t begin = clock();
  for (const Program::Action& action : program.actions()) execute_action(program, action, handler, spans, begin, clock);
}

/// `Context` is what one micro-batch leaves on one stage. Used by one thread.
template <class Context>
class ActivationStore {
 public:
  /// Sets the largest number of contexts: the peak that validate() counted for this rank.
  void set_bound(int bound) { bound_ = bound; }

  /// Throws InternalError for a context that is stored already, and where the store would exceed the bound.
  void put(StageId stage, MicroBatch micro_batch, Context context) {
    const bool is_new = live_.emplace(std::pair{stage, micro_batch}, std::move(context)).second;
    require<InternalError>(is_new, "stage ", stage.value(), " ran F", micro_batch.value(), " twice");
    peak_ = std::max(peak_, size());
    require<InternalError>(size() <= bound_, "stage ", stage.value(), " holds ", size(), " live micro-batches at F",
                           micro_batch.value(), ", the schedule's bound is ", bound_);
  }

  /// Removes and returns a context. Throws InternalError where there is none.
  Context take(StageId stage, MicroBatch micro_batch) {
    auto node = live_.extract(std::pair{stage, micro_batch});
    require<InternalError>(!node.empty(), "stage ", stage.value(), " has no activations for micro-batch ",
                           micro_batch.value());
    return std::move(node.mapped());
  }

  /// The same without removing it: I uses the context that W will take.
  Context& at(StageId stage, MicroBatch micro_batch) {
    const auto found = live_.find(std::pair{stage, micro_batch});
    require<InternalError>(found != live_.end(), "stage ", stage.value(), " has no activations for micro-batch ",
                           micro_batch.value());
    return found->second;
  }

  int size() const { return static_cast<int>(live_.size()); }
  /// The largest number of contexts stored at one time so far.
  int peak() const { return peak_; }
  void clear() { live_.clear(); }

 private:
  std::map<std::pair<StageId, MicroBatch>, Context> live_;
  int bound_ = 0;
  int peak_ = 0;
};

}  // namespace penstock::rank
