// Limits of the activations of each rank, as users set them: a multiple of 1F1B's activations, or bytes; and the live
// micro-batches that a limit is compared with.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "penstock/schedule/instruction.h"
#include "penstock/schedule/stage_costs.h"

namespace penstock {

/// A multiple of the live micro-batches that 1F1B holds on its first rank, min(m, p), for every rank. At least one
/// micro-batch is always permitted.
struct TimesOf1F1B {
  double times = 1;

  friend auto operator<=>(const TimesOf1F1B&, const TimesOf1F1B&) = default;
};

/// Bytes of activations on every rank, which is on every device unless ranks share one; without parameters, gradients
/// and the optimiser's state. It needs StageCosts::activation_bytes.
struct BytesPerRank {
  std::int64_t bytes = 0;

  friend auto operator<=>(const BytesPerRank&, const BytesPerRank&) = default;
};

using MemoryLimit = std::variant<TimesOf1F1B, BytesPerRank>;

/// Parses "1.5", a TimesOf1F1B, or "512MiB", BytesPerRank with a unit of base/text.h. Throws ConfigError, which
/// names the text and both forms.
MemoryLimit parse_memory_limit(std::string_view text);
/// "1.5" or "512MiB". parse_memory_limit(to_string(x)) == x, but for digits of a multiple after the sixth.
std::string to_string(const MemoryLimit& limit);

/// The same for messages: "100000000B (95.4MiB)" for bytes that no large unit divides.
std::string readable(const MemoryLimit& limit);

inline bool is_in_bytes(const MemoryLimit& limit) { return std::holds_alternative<BytesPerRank>(limit); }

/// Throws ConfigError for a limit that is not positive and finite, and for one in bytes if `costs` have no
/// activation_bytes: the functions below throw it too.
void require_memory_limit(const MemoryLimit& limit, const StageCosts& costs);

/// Per rank, the peak of the bytes of live activations; a micro-batch counts StageCosts::activation_bytes of its stage
/// from its F to its B or I, and the weight share of them from there to its W. 0 for a schedule that only goes forward.
/// REQUIRES: `costs` have activation_bytes and fit the stages.
std::vector<double> peak_activation_bytes(const Schedule& schedule, const StageCosts& costs);

/// The number of live micro-batches per rank that `bytes`, one number per rank, hold if each is as large as that of
/// the rank's largest stage; at most those of the step. A micro-batch counts once for each chunk.
std::vector<int> contexts_within(const Schedule& schedule, const StageCosts& costs, std::span<const double> bytes);

/// The limit as a number of live micro-batches per rank, counted as Validation::peak_activations: at least 1 for a
/// multiple, contexts_within() for bytes. The ranks of `schedule` may have different numbers of chunks.
std::vector<int> activation_limit(const Schedule& schedule, const MemoryLimit& limit, const StageCosts& costs = {});

/// The same for fuse_w() (FuseOptions::activation_limit). Throws ConfigError, which names the smallest sufficient
/// limit, if it is too small even for single W's.
std::vector<int> fuse_limit(const Schedule& schedule, const MemoryLimit& limit, const StageCosts& costs = {});

/// Whether the peaks of `schedule` stay within the limit: live micro-batches within activation_limit(), or
/// peak_activation_bytes() within the bytes.
bool is_within_limit(const Schedule& schedule, const MemoryLimit& limit, const StageCosts& costs = {});

/// The smallest limit in the unit of `limit` within which `schedule` stays; a multiple is rounded up to three decimals.
MemoryLimit needed_memory_limit(const Schedule& schedule, const MemoryLimit& limit, const StageCosts& costs = {});

/// Throws ConfigError, which names the smallest sufficient limit, unless is_within_limit().
void require_within_limit(const Schedule& schedule, const MemoryLimit& limit, const StageCosts& costs = {});

/// The live micro-batches of one rank's stages, in the order of the stages, at each point in time that can be the peak:
/// no other point has at least as many in every stage. A micro-batch counts 1 from its F to its B or I, and the weight
/// share from I to W.
using LiveContexts = std::vector<std::vector<double>>;

/// One entry per rank.
std::vector<LiveContexts> live_contexts(const Schedule& schedule, double weight_share);

}  // namespace penstock
