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

enum class Traffic : std::uint8_t {
  forward,    // boundary values of a micro-batch
  backward,   // their gradients
  reduce,     // parameter gradients between replicas
  ties,       // gradients and values of parameters that several stages use
  result,     // losses and metrics to every rank
  control,    // everything else: fingerprints, gathered traces, ...
  background  // received by a thread beside the rank's own: what has been written of a checkpoint
};

/// The identity of one message between two ranks: its only key, in the store of a rank's boundary messages, in the
/// mailbox of its receiver (there with the sender) and between processes.
///
/// The last three fields are named after boundary messages. Other messages are not between stages and use the fields as
/// their two sides agree; those of collective operations as control_tag() says.
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

  friend auto operator<=>(const Tag&, const Tag&) = default;
};

/// What a collective operation (world/collectives.h) is about.
enum class Topic : std::int32_t {
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
  invalid_loss,  // why the loss of a step is infinite or not a number
  connection,    // two ranks that device channels are about to connect
  announcement,  // messages whose tensors travel in device channels (transport/devices/device_channels.h)
  finish         // the end of all work
};

/// The pipeline number in tags of messages that belong to no pipeline.
inline constexpr std::uint32_t pipeline_of_world = 0xffffffff;

/// The tag of operation number `round` among those of `topic` of a pipeline. Operations set Tag::to_stage to the phase
/// of a message within the operation, and Tag::micro_batch to its number within the phase.
constexpr Tag control_tag(std::uint32_t pipeline, Topic topic, std::uint64_t round = 0) {
  return {pipeline, Traffic::control, round, static_cast<std::int32_t>(topic), 0, 0};
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

/// One step of one pipeline: the unit that can be cancelled without ending the world.
struct StepKey {
  std::uint32_t pipeline = 0;
  std::uint64_t step = 0;

  /// A value of `step` that stands for all messages of the pipeline, including those that belong to no step.
  static constexpr std::uint64_t all = std::uint64_t{1} << 62;
  /// The values of `step` from here on stand for work of Traffic::background.
  static constexpr std::uint64_t background = std::uint64_t{1} << 61;
  /// The values of Tag::step from here on count how often the values of tied parameters were synchronised.
  static constexpr std::uint64_t tied_values = std::uint64_t{1} << 59;
  /// Whether both are numbers of the same kind.
  static constexpr bool are_alike(std::uint64_t one, std::uint64_t other) { return one >> 59 == other >> 59; }
  /// Whether this is work of Traffic::background; not so for `all`.
  constexpr bool is_background() const { return step >= background && step < all; }

  friend auto operator<=>(const StepKey&, const StepKey&) = default;
};

/// The step that a message belongs to; none for traffic whose Tag::step does not count steps.
inline std::optional<StepKey> step_of(const Tag& tag) noexcept {
  if (tag.traffic == Traffic::background) return StepKey{tag.pipeline, StepKey::background + tag.step};
  if (tag.traffic == Traffic::control) return std::nullopt;
  return StepKey{tag.pipeline, tag.step};
}

/// Whether Tag::step is the number of a step, and not of other work.
inline bool counts_steps(const Tag& tag) noexcept {
  const std::optional<StepKey> step = step_of(tag);
  return step && step->step < StepKey::tied_values;
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
                               static_cast<std::uint64_t>(static_cast<std::uint32_t>(tag.micro_batch))})
      h = (h ^ part) * 0xff51afd7ed558ccdULL ^ (h >> 29);
    return static_cast<std::size_t>(h);
  }
};
