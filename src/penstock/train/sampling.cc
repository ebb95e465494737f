#include "penstock/train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <ATen/core/PhiloxRNGEngine.h>

#include "penstock/base/error.h"

namespace penstock {

std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  require<InternalError>(!logits.empty(), "a token out of none");
  for (const float logit : logits)
    require<Failure>(std::isfinite(logit), "the model gives a logit of ", logit,
                     ": its weights are damaged, or its training failed");
  std::vector<std::size_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), std::size_t{0});
  std::stable_sort(tokens.begin(), tokens.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (options.temperature == 0) return static_cast<std::int64_t>(tokens.front());
  const double largest = logits[tokens.front()];
  if (options.top_k > 0) tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(options.top_k)));
  std::sort(tokens.begin(), tokens.end());

  std::vector<double> widths;
  for (const std::size_t token : tokens) widths.push_back(std::exp((logits[token] - largest) / options.temperature));
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

double uniform_number(const TokenPlace& place) {
  // The engine counts its offset in groups of four numbers.
  at::philox_engine draw(place.seed, place.prompt, place.position);
  const std::uint64_t high = draw(), low = draw();
  return static_cast<double>((high << 21) ^ (low >> 11)) * 0x1p-53;
}

}  // namespace penstock
