// What is decided by measuring, before the network is partitioned and built.
#pragma once

#include <memory>
#include <vector>

#include "penstock/model/cell.h"
#include "penstock/runtime/kernels.h"
#include "penstock/runtime/options.h"
#include "penstock/runtime/world.h"
#include "penstock/schedule/order.h"

namespace penstock {

struct Undecided {
  const World& world;
  std::uint32_t pipeline = 0;
  Cell& network;
  const Schedule& instructions;  // of a step: whose stages are partitioned, and whether W's are fused
};

/// Replaces Kernels::tuned without a selection by the selection of what is the fastest, and the partition "time" by that partition; leaves
/// options alone that leave nothing to decide. Measures on world rank 0, on one micro-batch of PipelineOptions::sample,
/// which is gone afterwards. Collective. Throws ConfigError where a sample is needed and there is none.
void decide_by_measuring(const Undecided& undecided, PipelineOptions& options);

/// What the stages go by, once decide_by_measuring() has been called.
std::shared_ptr<const KernelSelection> kernels_of(const PipelineOptions& options);

}  // namespace penstock
