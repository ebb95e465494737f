// Text generation: runs a language model token by token through the pipeline, and samples the next tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "penstock/pipeline/pipeline.h"

namespace penstock {

struct SamplingOptions {
  double temperature = 1;  // divides the logits; 0: always the most likely token
  std::int64_t top_k = 0;  // sample from the k most likely tokens only; 0: from all
};

/// Samples a token by inverting the cumulative distribution at `uniform`, a number in [0, 1). `logits` has one entry
/// per token. Among equally likely tokens, top_k and temperature 0 prefer the lower number. Uses scalar double
/// arithmetic, so that the result depends on neither threads nor vector width. Throws Failure if a logit is infinite or
/// not a number.
std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform);

/// The key of uniform_number(): the token at `position` of prompt number `prompt`.
struct TokenPlace {
  std::uint64_t seed = 0;
  std::uint64_t prompt = 0;
  std::uint64_t position = 0;
};
/// A random number in [0, 1), a function of `place` only (a counter-based generator, Philox).
double uniform_number(const TokenPlace& place);

using Tokens = std::vector<std::int64_t>;

struct GenerateOptions {
  std::int64_t tokens = 100;  // to generate after each prompt
  std::int64_t context = 64;  // longest sequence that the model takes, at least 2
  SamplingOptions sampling = {};
  std::uint64_t seed = 0;  // of the sampling
};

struct Generated {
  std::vector<Tokens> sequences;  // each prompt followed by its continuation, in the order of the prompts
  std::int64_t tokens = 0;        // generated tokens, summed over all prompts
  double seconds = 0;             // from the first call to the last token
  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

/// Continues `prompts`, of any lengths, with a network that takes int64 tokens [n, T], returns logits [n, T, V] as its
/// first output, and supports inference sessions (zoo/gpt.h). The prompts are distributed over as many sessions as the
/// pipeline has micro-batches. Each session is one micro-batch and all sessions are in flight at once, so that every
/// stage has work if there are at least as many sessions as stages. Within a session all prompts advance together: the
/// length of the shortest prompt in one call, then one token per call. When a sequence exceeds the context, the session
/// restarts with the last half of the context.
///
/// Collective: every process calls it with the same arguments and gets the same tokens. They are drawn by (seed,
/// prompt, position), so they do not depend on stages, schedule or transport; they may depend on the number of
/// micro-batches, which changes the last bits of the logits. Throws ConfigError for no prompts, an empty prompt or
/// invalid options.
Generated generate(Pipeline& pipeline, const std::vector<Tokens>& prompts, const GenerateOptions& options);

}  // namespace penstock
