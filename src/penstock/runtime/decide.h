// What is decided by measuring, before the network is cut and built.
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
  const Schedule& words;  // of a step: whose stages are cut, and whether W's are fused
};

/// Replaces Kernels::tuned without a book by the book of what is the fastest, and the cut "time" by that cut; leaves
/// options alone that leave nothing to decide. Measures on world rank 0, on one micro-batch of PipelineOptions::sample,
/// which is gone afterwards. Collective. Throws ConfigError where a sample is needed and there is none.
void decide_by_measuring(const Undecided& undecided, PipelineOptions& options);

/// What the stages go by, once decide_by_measuring() has been called.
std::shared_ptr<const KernelBook> kernels_of(const PipelineOptions& options);

}  // namespace penstock
