#include "penstock/runtime/peaks.h"

#include <algorithm>

#include "penstock/world/resident_memory.h"

namespace penstock {

RankPeak peak_of(WorldRank rank, const RankRunner& runner) {
  RankPeak peak;
  peak.rank = rank;
  peak.measured = runner.peak_activations();
  peak.predicted = runner.predicted_activations();
  if (const HeldBytes* bytes = runner.held_bytes()) {
    peak.measured_bytes = bytes->peak();
    peak.predicted_bytes = bytes->predicted_peak();
  }
  peak.resident_bytes = resident_bytes();
  peak.peak_resident_bytes = peak_resident_bytes();
  return peak;
}

std::vector<RankPeak> gather_peaks(const RankContext& context, const GatherTag& tag, const RankPeak& own) {
  const torch::Tensor numbers =
      torch::tensor({std::int64_t{own.measured}, std::int64_t{own.predicted}, own.measured_bytes, own.predicted_bytes,
                     own.resident_bytes, own.peak_resident_bytes},
                    torch::kInt64);
  std::vector<RankPeak> peaks;
  for (const auto& [rank, tensor] : gather_tensors(context, tag, {{std::to_string(own.rank.value()), numbers}})) {
    const auto values = tensor.accessor<std::int64_t, 1>();
    peaks.push_back({WorldRank(std::stoi(rank)), static_cast<int>(values[0]), static_cast<int>(values[1]), values[2],
                     values[3], values[4], values[5]});
  }
  std::ranges::sort(peaks, {}, [](const RankPeak& peak) { return peak.rank.value(); });
  return peaks;
}

}  // namespace penstock
