#include "penstock/runtime/peaks.h"

#include "penstock/world/collectives.h"
#include "penstock/world/resident_memory.h"

namespace penstock {

RankPeak peak_of(WorldRank rank, const RankRunner& runner) {
  RankPeak peak;
  peak.rank = rank;
  peak.measured = runner.executor().peak_activations();
  peak.predicted = runner.executor().predicted_activations();
  if (const HeldBytes* bytes = runner.executor().held_bytes()) {
    peak.measured_bytes = bytes->peak();
    peak.predicted_bytes = bytes->predicted_peak();
  }
  peak.resident_bytes = resident_bytes();
  peak.peak_resident_bytes = peak_resident_bytes();
  return peak;
}

std::vector<RankPeak> gather_peaks(const RankContext& context, const Tag& tag, const RankPeak& own) {
  std::vector<RankPeak> peaks;
  for (const auto& of_rank : gather_records<RankPeak>(context, tag, {own}, "its peak activations"))
    peaks.insert(peaks.end(), of_rank.begin(), of_rank.end());
  return peaks;
}

}  // namespace penstock
