// How messages are matched, and how ranks say where they are. Torch-free.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace penstock {

enum class Traffic : std::uint8_t {
  forward,    // boundary values of a micro-batch
  backward,   // their gradients
  reduce,     // parameter gradients between replicas
  ties,       // gradients and values of parameters that several stages use
  result,     // losses and metrics to every rank
  control     // everything else: fingerprints, gathered traces, ...
};

/// The identity of one message between two ranks.
struct Tag {
  std::uint32_t pipeline = 0;   // several pipelines may share a world
  Traffic traffic = Traffic::control;
  std::uint64_t step = 0;
  std::int32_t from_stage = 0;  // for traffic that is not between stages: any number the two sides agree on
  std::int32_t to_stage = 0;
  std::int32_t micro_batch = 0;

  friend auto operator<=>(const Tag&, const Tag&) = default;
};

/// Where a rank is: told to peers so that an error can name it.
struct Position {
  char word[32] = "start";  // the instruction it is at, e.g. "0F5"; always terminated
};

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
