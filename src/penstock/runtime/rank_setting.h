// The settings of a pipeline that its ranks need.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <c10/core/Device.h>

#include "penstock/kernels/kernels.h"
#include "penstock/model/loss.h"
#include "penstock/runtime/batch_axes.h"
#include "penstock/runtime/batch_layout.h"
#include "penstock/runtime/options.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// A plain value, the same on every rank but for `context` and `device`.
struct RankSetting {
  std::uint32_t pipeline = 0;
  RankContext context;
  Loss loss;
  LossReductions reductions;
  std::optional<double> clip_norm;
  std::optional<std::vector<std::int64_t>> boundary_shape;
  std::uint64_t seed = 0;
  Precision precision = Precision::fp32;
  LossScaling loss_scaling = {};
  int compare_batches = 0;  // PipelineOptions::compare_batches
  c10::Device device = c10::kCPU;
  std::shared_ptr<const KernelSelection> kernels = nullptr;
  bool count_bytes = false;
  BatchAxesOf axes = {};
};

}  // namespace penstock
