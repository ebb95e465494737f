#include "penstock/schedule/instruction_times.h"

#include <algorithm>

namespace penstock {
namespace {

/// A list with one entry per stage, from a list with one entry per stage or one for all.
std::vector<double> per_stage(const std::vector<double>& given, int stages) {
  return given.size() == 1 ? std::vector<double>(static_cast<std::size_t>(stages), given.front()) : given;
}

}  // namespace

InstructionTimes::InstructionTimes(const StageCosts& costs, const Schedule& schedule)
    : overhead_(costs.overhead),
      message_(costs.message),
      message_gap_(costs.message_gap),
      micro_batches_(schedule.micro_batches) {
  const int stages = schedule.stage_count();
  require_costs_fit(costs, stages);
  forward_ = per_stage(costs.forward, stages);
  input_grad_ = per_stage(costs.input_grad, stages);
  weight_grad_ = per_stage(costs.weight_grad, stages);
  fused_ = costs.weight_grad_fused.empty() ? weight_grad_ : per_stage(costs.weight_grad_fused, stages);
  update_ = per_stage(costs.update, stages);
  forward_cache_saving_ = per_stage(costs.forward_cache_saving, stages);
  input_grad_cache_saving_ = per_stage(costs.input_grad_cache_saving, stages);
  weight_grad_cache_saving_ = per_stage(costs.weight_grad_cache_saving, stages);
  if (!costs.backward.empty()) backward_ = per_stage(costs.backward, stages);
  for (std::size_t s = backward_.size(); s < input_grad_.size(); ++s)
    backward_.push_back(input_grad_[s] + weight_grad_[s]);
}

double InstructionTimes::operator()(const Instruction& instruction, const std::optional<Instruction>& before) const {
  const std::size_t stage = instruction.stage().index();
  const auto with_overhead = [&](double cost) {
    return overhead_ + std::max(0.0, cost - cache_saving(instruction, before));
  };
  switch (instruction.op()) {
    case Op::forward: return with_overhead(forward_[stage]);
    case Op::backward: return with_overhead(backward_[stage]);
    case Op::input_grad: return with_overhead(input_grad_[stage]);
    case Op::weight_grad: return with_overhead(grouped_weight_grad(stage, instruction.micro_batch_count()));
    case Op::step: return update_[stage];
    default: return 0;
  }
}

double InstructionTimes::cache_saving(const Instruction& instruction, const std::optional<Instruction>& before) const {
  if (!before || before->stage() != instruction.stage()) return 0;
  const std::size_t stage = instruction.stage().index();
  const bool parameters = before->op() != Op::weight_grad;
  const bool gradients = before->op() == Op::weight_grad || before->op() == Op::backward;
  const double in_i = parameters ? input_grad_cache_saving_[stage] : 0,
               in_w = gradients ? weight_grad_cache_saving_[stage] : 0;
  switch (instruction.op()) {
    case Op::forward: return parameters ? forward_cache_saving_[stage] : 0;
    case Op::backward: return in_i + in_w;
    case Op::input_grad: return in_i;
    case Op::weight_grad: return in_w;
    default: return 0;
  }
}

double InstructionTimes::grouped_weight_grad(std::size_t stage, int group) const {
  if (group == 1 || fused_[stage] == weight_grad_[stage]) return weight_grad_[stage] * group;
  const double missing = static_cast<double>(micro_batches_ - group) / (micro_batches_ - 1);
  return fused_[stage] * group + (weight_grad_[stage] - fused_[stage]) * missing;
}

}  // namespace penstock
