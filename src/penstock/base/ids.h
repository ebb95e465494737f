// Strong integer types for stages, ranks, micro-batches and replicas: code that mixes them up does not compile.
//
// Symbols used everywhere:
//   p  pipeline ranks            v  virtual stages per rank (--chunks)   S = p*v  stages
//   m  micro-batches per step    d  data-parallel replicas
//   F  forward   B  full backward   I  input-gradient half of B   W  weight-gradient half of B
//   C  transfer time of one boundary message
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace penstock {

/// An integer that compares only with integers of the same `Tag`. Trivially copyable, 4 bytes.
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::int32_t value) : value_(value) {}

  constexpr std::int32_t value() const { return value_; }
  /// The value as a subscript. It must not be negative.
  constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }

  constexpr Id next() const { return Id(value_ + 1); }
  constexpr Id previous() const { return Id(value_ - 1); }

  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  std::int32_t value_ = 0;
};

/// A stage of the model, 0..S-1 in the order of the data flow.
using StageId = Id<struct StageTag>;
/// A pipeline rank, 0..p-1: one row of a schedule.
using Rank = Id<struct RankTag>;
/// A micro-batch of one step, 0..m-1.
using MicroBatch = Id<struct MicroBatchTag>;
/// A data-parallel replica of the whole pipeline, 0..d-1.
using Replica = Id<struct ReplicaTag>;
/// A rank of the whole world, 0..p*d-1: world rank = pipeline rank * d + replica.
using WorldRank = Id<struct WorldRankTag>;

}  // namespace penstock

template <class Tag>
struct std::hash<penstock::Id<Tag>> {
  std::size_t operator()(penstock::Id<Tag> id) const noexcept { return std::hash<std::int32_t>{}(id.value()); }
};
