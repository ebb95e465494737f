#include "penstock/runtime/step_forms.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/schedule/channels_of.h"
#include "penstock/schedule/receive_buffers.h"

namespace penstock {

std::shared_ptr<const StepForm> StepForms::of(const StepJob& job) {
  if (!setting_.has_static_steps() || !job.training || job.is_later_part()) return nullptr;
  auto& form = known_[{job.layout.samples(), job.part}];
  if (!form) form = made_for(job);
  return form;
}

std::shared_ptr<const StepForm> StepForms::made_for(const StepJob& job) const {
  StepForm form{.name = say(job.layout.samples(), " samples"), .memory = memory_, .posts = 1};
  const CompiledSchedule& compiled = job.schedule_of(placement_.replica());
  if (compiled.schedule.micro_batches == 0) return std::make_shared<const StepForm>(std::move(form));
  for (const Channel& channel : channels_of(compiled.schedule, compiled.links))
    form.posts = std::max(form.posts, channel.order_posts);
  int number = 0;
  for (const LinkBuffers& link : assign_buffers(compiled.schedule, form.posts, compiled.links)) {
    const bool is_forward = link.direction == Direction::forward;
    if (placement_.is_local(is_forward ? link.link.to : link.link.from))
      for (std::size_t i = 0; i < link.buffer_of.size(); ++i)
        form.buffers[{.pipeline = placement_.pipeline(),
                      .traffic = is_forward ? Traffic::forward : Traffic::backward,
                      .from_stage = link.link.from.value(),
                      .to_stage = link.link.to.value(),
                      .micro_batch = static_cast<std::int32_t>(i)}] = number + link.buffer_of[i];
    number += link.count;
  }
  return std::make_shared<const StepForm>(std::move(form));
}

}  // namespace penstock
