#include <algorithm>
#include <ostream>

#include "penstock/runtime/profiler.h"
#include "penstock/train/hooks.h"
#include "penstock/train/line_format.h"
#include "penstock/train/trainer.h"
#include "penstock/world/resident_memory.h"

namespace penstock {

void MemoryHook::attached(Trainer& trainer) { trainer_ = &trainer; }

void MemoryHook::after_epoch(const EpochReport& report) {
  MemoryUse use;
  use.epoch = report.epoch;
  use.resident_bytes = resident_bytes();
  // The kernel updates its maximum lazily, so it may be below the present value.
  use.peak_resident_bytes = std::max(peak_resident_bytes(), use.resident_bytes);
  for (const RankPeak& peak : Profiler(trainer_->pipeline()).local_peaks()) {
    use.peak_activations = std::max(use.peak_activations, peak.measured);
    use.peak_activation_bytes = std::max(use.peak_activation_bytes, peak.measured_bytes);
  }
  epochs_.push_back(use);
  if (!out_) return;
  constexpr double mebibyte = 1 << 20;
  *out_ << format_line("epoch: %lld, memory %.1f MiB, at most %.1f MiB, live micro-batches at most %d",
                       static_cast<long long>(use.epoch), static_cast<double>(use.resident_bytes) / mebibyte,
                       static_cast<double>(use.peak_resident_bytes) / mebibyte, use.peak_activations);
  if (use.peak_activation_bytes > 0)
    *out_ << format_line(" (%.1f MiB)", static_cast<double>(use.peak_activation_bytes) / mebibyte);
  *out_ << "\n" << std::flush;
}

}  // namespace penstock
