#include "penstock/runtime/step_graph.h"

namespace penstock {

StepGraph* StepGraphs::of(const StepJob& job, const std::shared_ptr<const StepForm>& form, bool are_layers_timed,
                          const RankStages& stages) {
  if (!setting_.capture_steps || !form || job.keeps_outputs || are_layers_timed) return nullptr;
  std::vector<bool> written;
  for (const auto& stage : stages)
    for (std::size_t use = 0; use < stage->gradients().leaves().size(); ++use)
      written.push_back(stage->gradients().of_use(use).defined());
  return &graphs_.try_emplace({form, std::move(written)}, setting_.device).first->second;
}

}  // namespace penstock
