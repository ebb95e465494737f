#include "penstock/runtime/step_graph.h"

namespace penstock {

StepGraph* StepGraphs::of(const StepJob& job, const std::shared_ptr<const StepForm>& form, bool are_layers_timed) {
  if (!setting_.capture_steps || !form || job.keeps_outputs || are_layers_timed) return nullptr;
  return &graphs_.try_emplace({form, job.shares.continues}, setting_.device).first->second;
}

}  // namespace penstock
