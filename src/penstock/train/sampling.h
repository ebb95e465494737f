// Samples the next token from logits.
#pragma once

#include <cstdint>
#include <span>

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
/// A random number in [0, 1), a function of `place` alone (a counter-based generator, Philox).
double uniform_number(const TokenPlace& place);

}  // namespace penstock
