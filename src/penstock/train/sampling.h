// How a token is drawn from the logits of a language model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

using Tokens = std::vector<std::int64_t>;

/// Applied in this order: repetition_penalty, temperature, top_k, top_p.
struct SamplingOptions {
  double temperature = 1;  // divides the logits; 0: always the most likely token
  std::int64_t top_k = 0;  // sample from the k most likely tokens only; 0: from all
  double top_p = 1;        // sample from the fewest most likely tokens that together have this probability; 1: from all
  /// Above 1, tokens that the sequence already contains become less likely: a positive logit is divided by it, a
  /// negative one multiplied (Keskar and others: CTRL, arXiv 1909.05858, section 4.1).
  double repetition_penalty = 1;
};

/// Throws ConfigError for a value out of its range.
void check(const SamplingOptions& options);

/// The key of uniform_number(): the token at `position` of prompt number `prompt`.
struct TokenPlace {
  std::uint64_t seed = 0;
  std::uint64_t prompt = 0;
  std::uint64_t position = 0;
};
/// A random number in [0, 1), a function of `place` only (a counter-based generator, Philox).
double uniform_number(const TokenPlace& place);

/// Samples a token by inverting the cumulative distribution at `uniform`, a number in [0, 1). `logits` has one entry
/// per token; `sequence` is what precedes the token, for the repetition penalty. Among equally likely tokens, top_k,
/// top_p and temperature 0 prefer the lower number. Uses scalar double arithmetic, so that the result depends on
/// neither threads nor vector width. Throws Failure if a logit is infinite or not a number.
std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform,
                          const Tokens& sequence = {});

}  // namespace penstock
