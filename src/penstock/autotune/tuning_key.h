// What measurements depend on, as text: the key of the tuning cache. Used inside this module only.
#pragma once

#include <string>

#include "penstock/model/cell.h"
#include "penstock/model/loss.h"
#include "penstock/runtime/options.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// The settings of a job that are not in its PipelineOptions.
struct TunedJob {
  std::string transport;
  int threads = 1;       // intra-op threads per rank
  std::string settings;  // TuningCache::settings
};

/// One line for each of: the versions of Penstock and LibTorch, the processor, the ranks, the options that change
/// times, the sample's shapes and dtypes, and every layer with its type, settings and parameter shapes. Equal text
/// means equal conditions. Builds every layer temporarily. For the thread of world rank 0.
std::string tuning_key(const RankContext& context, const TunedJob& job, Cell& network, const Loss& loss,
                       const PipelineOptions& options);

}  // namespace penstock
