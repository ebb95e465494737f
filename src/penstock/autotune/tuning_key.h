// The key of a job in the tuning cache: the text of everything that its measurements depend on.
#pragma once

#include <string>

#include "penstock/autotune/autotune_options.h"

namespace penstock {

class Cell;
struct Loss;
struct PipelineOptions;
struct RankContext;

/// What a job's world has in addition to a rank's context.
struct TunedWorld {
  std::string transport;
  int threads = 1;  // intra-op threads per rank
};

/// One line for each of: the versions of Penstock and LibTorch, the processor, the ranks, the options that change
/// times, the sample's shapes and dtypes, and every layer with its type, settings and parameter shapes. Equal text
/// means equal conditions. Builds every layer temporarily. For the thread of world rank 0.
std::string tuning_key(const RankContext& context, const TunedWorld& world, Cell& network, const Loss& loss,
                       const PipelineOptions& options, const AutotuneOptions& how);

}  // namespace penstock
