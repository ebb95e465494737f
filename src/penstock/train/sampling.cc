#include "penstock/train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <ATen/core/PhiloxRNGEngine.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// The tokens that may be drawn: the `count` most likely ones or all, in ascending order.
std::vector<std::size_t> most_likely(const std::vector<double>& logits, std::int64_t count) {
  std::vector<std::size_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), std::size_t{0});
  if (count == 0 || count >= static_cast<std::int64_t>(tokens.size())) return tokens;
  const auto more_likely = [&](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  std::nth_element(tokens.begin(), tokens.begin() + count - 1, tokens.end(), more_likely);
  tokens.resize(static_cast<std::size_t>(count));
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

/// Sets to 0 the widths that top_p leaves out.
void keep_share(std::vector<double>& widths, double top_p) {
  std::vector<std::size_t> order(widths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return widths[a] > widths[b]; });
  double left = top_p * std::accumulate(widths.begin(), widths.end(), 0.0);
  for (const std::size_t i : order) {
    if (left <= 0) widths[i] = 0;
    left -= widths[i];
  }
}

}  // namespace

void check(const SamplingOptions& options) {
  require<ConfigError>(std::isfinite(options.temperature) && options.temperature >= 0, "a temperature of ",
                       options.temperature, ": pass 0 (always the most likely token) or more");
  require<ConfigError>(options.top_k >= 0, "top-k of ", options.top_k, ": pass 0 (all tokens) or more");
  require<ConfigError>(options.top_p > 0 && options.top_p <= 1, "top-p of ", options.top_p,
                       ": pass a probability above 0, at most 1 (all tokens)");
  require<ConfigError>(std::isfinite(options.repetition_penalty) && options.repetition_penalty > 0,
                       "a repetition penalty of ", options.repetition_penalty, ": pass a number above 0; 1 is none");
}

double uniform_number(const TokenPlace& place) {
  // The engine counts its offset in groups of four numbers.
  at::philox_engine draw(place.seed, place.prompt, place.position);
  const std::uint64_t high = draw(), low = draw();
  return static_cast<double>((high << 21) ^ (low >> 11)) * 0x1p-53;
}

std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform,
                          const Tokens& sequence) {
  require<InternalError>(!logits.empty(), "a token out of none");
  for (const float logit : logits)
    require<Failure>(std::isfinite(logit), "the model returned a logit of ", logit,
                     ": its weights are damaged, or its training failed");
  std::vector<double> scores(logits.begin(), logits.end());
  if (options.repetition_penalty != 1)
    for (const std::int64_t token : std::set<std::int64_t>(sequence.begin(), sequence.end())) {
      double& score = scores.at(static_cast<std::size_t>(token));
      score = score > 0 ? score / options.repetition_penalty : score * options.repetition_penalty;
    }
  const auto largest = std::max_element(scores.begin(), scores.end());
  if (options.temperature == 0) return largest - scores.begin();

  const std::vector<std::size_t> tokens = most_likely(scores, options.top_k);
  std::vector<double> widths;
  widths.reserve(tokens.size());
  for (const std::size_t token : tokens) widths.push_back(std::exp((scores[token] - *largest) / options.temperature));
  if (options.top_p < 1) keep_share(widths, options.top_p);
  double left = uniform * std::accumulate(widths.begin(), widths.end(), 0.0);
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (widths[i] == 0) continue;
    chosen = i;  // rounding may leave left > 0 after the last token
    left -= widths[i];
    if (left < 0) break;
  }
  return static_cast<std::int64_t>(tokens[chosen]);
}

}  // namespace penstock
