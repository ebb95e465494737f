#include "penstock/autotune/autotune.h"

#include <utility>

#include "penstock/autotune/measured_options.h"

namespace penstock {

PipelineOptions autotune(World& world, Cell& network, const Loss& loss, PipelineOptions options,
                         const BatchTensors& inputs, const BatchTensors& targets, const ProfileOptions& how) {
  options.sample = inputs.list();
  options.sample_targets = targets;
  return autotune(world, network, loss, options, how);
}

PipelineOptions autotune(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                         const ProfileOptions& how) {
  if (options.schedule == "auto") return choose_by_profile(world, network, loss, options, how).options;
  return measured_options(world, network, options);
}

}  // namespace penstock
