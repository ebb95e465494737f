// Text from a language model, token by token through the pipeline.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/runtime/pipeline.h"
#include "penstock/train/sampling.h"

namespace penstock {

using Tokens = std::vector<std::int64_t>;

struct GenerateOptions {
  std::int64_t tokens = 100;  // after each prompt
  std::int64_t context = 64;  // the longest sequence that the model takes, at least 2
  SamplingOptions sampling = {};
  std::uint64_t seed = 0;  // of the sampling
};

struct Generated {
  std::vector<Tokens> sequences;  // each prompt, and what follows it
  std::int64_t tokens = 0;        // that were made, of all prompts
  double seconds = 0;             // from the first call to the last token
  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

/// Continues `prompts`, of any lengths, with a network that takes tokens [n, T] and gives logits [n, T, V] as its first
/// output, and that remembers in sessions (zoo/gpt.h). The prompts are spread over as many sessions as the pipeline has
/// micro-batches; each is one micro-batch of its own, and all are under way at once, so that every stage has work
/// where there are at least as many of them as stages. Within a session all prompts advance together: their common
/// beginning in one call, then a token at a time. Where a sequence outgrows the context, its last half is read again.
///
/// Every process calls it with the same arguments and gets the same tokens: they are drawn by (seed, prompt, position),
/// so they depend on the number of micro-batches (it changes the last bits of logits), but neither on stages, schedule
/// nor transport. Throws ConfigError for no prompts, an empty prompt or options that cannot be.
Generated generate(Pipeline& pipeline, const std::vector<Tokens>& prompts, const GenerateOptions& options);

}  // namespace penstock
