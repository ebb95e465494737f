// The identity of messages, and the position that ranks report to their peers. Torch-free.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string_view>

namespace penstock {

/// What a message carries, and what Tag::step counts: steps, except as noted.
enum class Traffic : std::uint8_t {
  forward,      // boundary values of a micro-batch
  backward,     // their gradients
  reduce,       // parameter gradients between replicas
  ties,         // gradients of parameters that several stages use
  tied_values,  // values of such parameters; counts their synchronisations
  result,       // losses and metrics to every rank
  control,      // collective operations and what pipelines do between steps; counts these
  background    // received by a thread beside the rank's own: what has been written of a checkpoint; counts saves
};

/// Whether messages carry tensors of stages, which are on the devices of ranks.
constexpr bool carries_tensors_of_stages(Traffic traffic) { return traffic < Traffic::result; }

/// What a collective operation (world/collectives.h) is about.
enum class Topic : std::uint8_t {
  none,          // the message is not of a collective operation
  settings,      // the comparison before the first step
  batches,       // the comparison of the batches of a step
  kernels,       // the kernels that rank 0 selects
  partition,     // the partition that rank 0 chooses
  layer_times,   // the times of layers that all ranks have measured
  steps,         // the times of candidates' steps
  tuning,        // what rank 0 finds in the tuning cache
  gathering,     // records, steps or tensors of all ranks
  host_clock,    // the clocks of hosts
  host_links,    // the speed of messages between hosts
  state,         // whether a state fits
  requests,      // what single processes want before a step: to save, to stop
  user_line,     // what the user of a chat has typed
  invalid_loss,  // why the loss of a step is infinite or not a number
  connection,    // two ranks that device channels are about to connect
  announcement,  // messages whose tensors travel in device channels (transport/devices/device_channels.h)
  finish         // the end of all work
};

/// The identity of one message between two ranks: its only key, in the store of a rank's boundary messages, in the
/// mailbox of its receiver (there with the sender) and between processes.
///
/// The stages and the micro-batch are those of boundary messages. Other messages are not between stages and use these
/// fields as their two sides agree; messages of collective operations as in_phase() says.
struct Tag {
  /// Several pipelines may share a world.
  std::uint32_t pipeline = 0;
  /// A value and its gradient have the same link, step and micro-batch.
  Traffic traffic = Traffic::control;
  /// Messages of several steps may be in flight.
  std::uint64_t step = 0;
  /// A rank may hold several stages, and a stage may read from several others, so that ranks do not identify a link.
  std::int32_t from_stage = 0;
  std::int32_t to_stage = 0;
  /// The receiver may take micro-batches in another order than the sender computes them.
  std::int32_t micro_batch = 0;
  Topic topic = Topic::none;

  friend auto operator<=>(const Tag&, const Tag&) = default;
};

/// The pipeline number in tags of messages that belong to no pipeline.
inline constexpr std::uint32_t pipeline_of_world = 0xffffffff;

/// The tag of operation number `round` among those of `topic` of a pipeline.
constexpr Tag control_tag(std::uint32_t pipeline, Topic topic, std::uint64_t round = 0) {
  return {.pipeline = pipeline, .traffic = Traffic::control, .step = round, .topic = topic};
}

/// The tag of message `number` in a phase of the operation with the tag `operation`.
constexpr Tag in_phase(Tag operation, std::int32_t phase, std::int32_t number = 0) {
  operation.to_stage = phase;
  operation.micro_batch = number;
  return operation;
}

/// The instruction that a rank executes, reported to peers for their error messages.
struct Position {
  char instruction[32] = "start";  // e.g. "0F5"; always null-terminated
  std::int64_t step = -1;          // -1 outside of steps
};

/// The position of a rank that has left its world and sends no more messages.
inline constexpr Position end_position{"end"};
inline bool is_end(const Position& position) noexcept {
  return std::string_view(position.instruction) == end_position.instruction;
}

/// The kinds of work of a pipeline whose waits can be ended.
enum class WorkKind : std::uint8_t {
  step,
  tied_values,  // a synchronisation of the values of tied parameters
  background,   // a save, whose messages are of Traffic::background
  all           // everything that the pipeline does, including what belongs to no step
};

/// One piece of work of one pipeline: the unit that can be cancelled without ending the world.
struct StepKey {
  std::uint32_t pipeline = 0;
  std::uint64_t number = 0;  // among the work of its kind; 0 for WorkKind::all
  WorkKind kind = WorkKind::step;

  friend auto operator<=>(const StepKey&, const StepKey&) = default;
};

/// The work that a message belongs to; none for Traffic::control.
constexpr std::optional<StepKey> step_of(const Tag& tag) noexcept {
  if (tag.traffic == Traffic::control) return std::nullopt;
  const WorkKind kind = tag.traffic == Traffic::background    ? WorkKind::background
                        : tag.traffic == Traffic::tied_values ? WorkKind::tied_values
                                                              : WorkKind::step;
  return StepKey{tag.pipeline, tag.step, kind};
}

/// Whether Tag::step is the number of a step, and not of other work.
constexpr bool counts_steps(const Tag& tag) noexcept {
  const std::optional<StepKey> work = step_of(tag);
  return work && work->kind == WorkKind::step;
}

/// Where a rank was when it sent the message with `tag`: for boundary messages at their SEND, for other messages of a
/// step at an instruction without a name. REQUIRES: counts_steps(tag).
inline Position sending_position(const Tag& tag) noexcept {
  Position sending{"", static_cast<std::int64_t>(tag.step)};
  if (tag.traffic == Traffic::forward || tag.traffic == Traffic::backward) {
    const bool is_forward = tag.traffic == Traffic::forward;
    std::snprintf(sending.instruction, sizeof(sending.instruction), "%dSEND_%c%d",
                  is_forward ? tag.from_stage : tag.to_stage, is_forward ? 'F' : 'B', tag.micro_batch);
  }
  return sending;
}

}  // namespace penstock

template <>
struct std::hash<penstock::Tag> {
  std::size_t operator()(const penstock::Tag& tag) const noexcept {
    std::uint64_t h = tag.step * 0x9e3779b97f4a7c15ULL;
    for (std::uint64_t part : {std::uint64_t{tag.pipeline}, static_cast<std::uint64_t>(tag.traffic),
                               static_cast<std::uint64_t>(static_cast<std::uint32_t>(tag.from_stage)),
                               static_cast<std::uint64_t>(static_cast<std::uint32_t>(tag.to_stage)),
                               static_cast<std::uint64_t>(static_cast<std::uint32_t>(tag.micro_batch)),
                               static_cast<std::uint64_t>(tag.topic)})
      h = (h ^ part) * 0xff51afd7ed558ccdULL ^ (h >> 29);
    return static_cast<std::size_t>(h);
  }
};
