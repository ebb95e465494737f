// Detects processes that were given different batches, which would otherwise train on them without an error.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/model/value.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// Thrown on every rank with the same text, so that the world need not be aborted.
class BatchesDiffer : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// Type, sizes and a hash of about 64 KiB of the contents, evenly spread. Equal tensors have equal digests; those of
/// different batches differ with high probability.
std::string digest_of(const torch::Tensor& tensor);

/// The batch of one rank for one step.
struct GivenBatch {
  std::uint32_t pipeline = 0;
  std::uint64_t step = 0;  // number among all submitted jobs, evaluations too; part of message tags
  std::uint64_t training_step = 0;
  Tensors targets;  // the whole batch's
  /// By graph input: the rows of this replica; none where this rank does not read it.
  std::vector<std::optional<torch::Tensor>> inputs;
};

/// Called on every rank's thread. Compares targets over all ranks, and inputs over the ranks of a replica that read
/// them. Throws BatchesDiffer on every rank, naming two ranks and their digests, where two ranks differ.
void compare_batches(const RankContext& context, const GivenBatch& given);

/// Whether training step `training_step`, counted from 0, is compared: the first three, and the multiples of `every`;
/// none where `every` is 0.
bool is_compared(std::uint64_t training_step, int every);

}  // namespace penstock
