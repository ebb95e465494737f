#include "penstock/autotune/annotated_stages.h"

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/model/graph.h"
#include "penstock/runtime/partition_network.h"
#include "penstock/runtime/profiler.h"

namespace penstock {

StageLayers annotated_stages(Cell& network, const PipelineOptions& options, int ranks) {
  int needed = 0;
  for (const Node& node : trace_graph(network, options.inputs, trace_sample(options)).nodes)
    needed = std::max(needed, node.stage.value_or(-1) + 1);
  if (needed == 0) return {};
  const int least = ranks == 1 ? 1 : (needed + ranks - 1) / ranks;
  const int stages = ranks * (options.chunks > 0 ? options.chunks : least);
  StageLayers layers = layers_by_stage(partition_network(network, options, stages));
  for (int s = 0; s < stages; ++s)
    require<ConfigError>(!layers[static_cast<std::size_t>(s)].empty(),
                         "schedule 'auto' measures every stage, but stage ", s, " of ", stages,
                         " has no layers: annotate some with it, or name a schedule");
  return layers;
}

}  // namespace penstock
