// Processes that were given different batches would train on them without an error: they compare hashes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/model/value.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// Thrown on every rank alike, with the same instructions: nobody has to be told by ending the world.
class BatchesDiffer : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// Type, sizes and a hash of some 64 KiB of its contents, evenly spread: equal tensors have equal digests, and those of
/// different batches differ unless by chance.
std::string digest_of(const torch::Tensor& tensor);

/// What one rank was given for one step.
struct GivenBatch {
  std::uint32_t pipeline = 0;
  std::uint64_t step = 0;  // of all that was submitted, evaluations too: what messages are tagged with
  std::uint64_t training_step = 0;
  Tensors targets;  // the whole batch's
  /// By graph input: the rows of this replica; none where this rank does not read it.
  std::vector<std::optional<torch::Tensor>> inputs;
};

/// Called on every rank's thread. Compares targets over all ranks, and inputs over the ranks of a replica that read
/// them. Throws BatchesDiffer on every rank where two ranks have different ones, with both.
void compare_batches(const RankContext& context, const GivenBatch& given);

/// Whether training step `training_step`, counted from 0, is compared: the first three, and those that `every` divides.
bool is_compared(std::uint64_t training_step, int every);

}  // namespace penstock
