#include "penstock/runtime/fingerprint.h"

#include <functional>

#include <torch/version.h>

#include "penstock/base/error.h"
#include "penstock/kernels/kernel_selection.h"
#include "penstock/runtime/partition_network.h"
#include "penstock/schedule/schedule.h"

namespace penstock {
namespace {

const char* name_of(Reduction reduction) { return reduction == Reduction::mean ? "mean" : "sum"; }

}  // namespace

Fingerprint fingerprint_of(const PipelineOptions& options, const PipelineParts& parts) {
  return {{"penstock", PENSTOCK_VERSION},
          {"LibTorch", TORCH_VERSION},
          {"stages", say(parts.world.stages())},
          {"replicas", say(parts.world.replicas())},
          {"micro-batches", say(options.micro_batches)},
          {"schedule", options.schedule},
          {"weight gradients", to_string(options.weight_gradients)},
          {"instructions", say(std::hash<std::string>{}(write_schedule(parts.training)))},
          {"network", outline(parts.staged)},
          {"loss", parts.loss.name},
          {"reduction", name_of(options.reduction)},
          {"replica reduction", name_of(options.replica_reduction)},
          {"reported loss", options.reported_loss ? name_of(*options.reported_loss) : "as reduced"},
          {"clip norm", options.clip_norm ? say(*options.clip_norm) : "none"},
          {"layouts", say(parts.axes.inputs.text(), "; ", parts.axes.targets.text(), "; ", parts.axes.outputs.text())},
          {"boundary shape", options.boundary_shape ? say(at::IntArrayRef(*options.boundary_shape)) : "any"},
          {"precision", to_string(options.precision)},
          {"loss scaling", say(options.loss_scaling.initial, " for ", options.loss_scaling.growth_steps)},
          {"compared batches", say(options.compare_batches)},
          {"kernels", kernels_from(options.kernels, options.kernel_selection)->fingerprint()},
          {"device", options.device},
          {"seed", say(options.seed)},
          {"threads per rank", say(parts.world.threads())}};
}

}  // namespace penstock
