// What a rank knows of its pipeline: the options, and what was made of them for this rank.
#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/Device.h>

#include "penstock/kernels/kernels.h"
#include "penstock/model/loss.h"
#include "penstock/rank/batch_axes.h"
#include "penstock/rank/options.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// A plain value, the same on every rank but for `context` and `device`.
struct RankSetting {
  std::uint32_t pipeline = 0;
  RankContext context;
  Loss loss;
  std::shared_ptr<const PipelineOptions> options;
  c10::Device device = c10::kCPU;  // of this rank
  std::shared_ptr<const KernelSelection> kernels = nullptr;
  BatchAxesOf axes = {};
};

}  // namespace penstock
