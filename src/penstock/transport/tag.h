// The identity of messages, and the position that ranks report to their peers. Torch-free.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace penstock {

enum class Traffic : std::uint8_t {
  forward,   // boundary values of a micro-batch
  backward,  // their gradients
  reduce,    // parameter gradients between replicas
  ties,      // gradients and values of parameters that several stages use
  result,    // losses and metrics to every rank
  control    // everything else: fingerprints, gathered traces, ...
};

/// The identity of one message between two ranks.
struct Tag {
  std::uint32_t pipeline = 0;  // several pipelines may share a world
  Traffic traffic = Traffic::control;
  std::uint64_t step = 0;
  std::int32_t from_stage = 0;  // for traffic that is not between stages: any number the two sides agree on
  std::int32_t to_stage = 0;
  std::int32_t micro_batch = 0;

  friend auto operator<=>(const Tag&, const Tag&) = default;
};

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

  friend auto operator<=>(const StepKey&, const StepKey&) = default;
};

/// The step that a message belongs to; none for traffic whose Tag::step does not count steps.
inline std::optional<StepKey> step_of(const Tag& tag) noexcept {
  if (tag.traffic == Traffic::ties || tag.traffic == Traffic::control) return std::nullopt;
  return StepKey{tag.pipeline, tag.step};
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
