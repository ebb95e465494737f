// From logits to the next token.
#pragma once

#include <cstdint>
#include <span>

namespace penstock {

struct SamplingOptions {
  double temperature = 1;  // divides the logits; 0: always the likeliest token
  std::int64_t top_k = 0;  // only so many of the likeliest; 0: all
};

/// The token that the number `uniform` in [0, 1) stands for: tokens in their order, each as wide as it is likely.
/// Of equally likely ones the lower comes first. In plain double arithmetic, so that it depends on neither threads nor
/// vector width. Throws Failure where a logit is not a number or infinite.
std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform);

/// A number in [0, 1) for the token at `position` of prompt `prompt`: a function of these alone, by a counter (Philox).
struct TokenPlace {
  std::uint64_t seed = 0;
  std::uint64_t prompt = 0;
  std::uint64_t position = 0;
};
double uniform_number(const TokenPlace& place);

}  // namespace penstock
