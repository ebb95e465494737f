#include "penstock/schedule/stage_costs.h"

#include <algorithm>
#include <string_view>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// Up to this value, sums over the largest schedules stay finite, and exact enough to compare.
constexpr double highest_cost = 1e15;

void require_cost(std::string_view what, double cost) {
  require<ConfigError>(cost >= 0 && cost <= highest_cost, "a cost for ", what, " is ", cost, ": costs go from 0 to ",
                       highest_cost);
}

void require_cost_per_stage(std::string_view what, const std::vector<double>& given, int stages) {
  require<ConfigError>(given.size() == 1 || given.size() == static_cast<std::size_t>(stages), "there are ",
                       given.size(), " costs for ", what, " and ", stages, " stages: pass one for all or one for each");
  for (const double cost : given) require_cost(what, cost);
}

void require_message(double time, double gap) {
  require_cost("a message", time);
  require<ConfigError>(gap >= 0 && gap <= time, "a message occupies its link for ", gap, " of the ", time,
                       " that it takes: pass a part of its cost, from 0 to all of it");
}

void require_messages(const std::vector<MessageCost>& messages, int stages) {
  require<ConfigError>(messages.empty() || messages.size() + 1 == static_cast<std::size_t>(stages), "there are ",
                       messages.size(), " costs of messages and ", stages,
                       " stages: pass one for each pair of neighbouring stages");
  for (const MessageCost& message : messages) require_message(message.time, message.gap);
}

}  // namespace

StageCosts divided(StageCosts costs, int parts) {
  require<ConfigError>(parts >= 1, "costs divided into ", parts, " parts: at least 1 is needed");
  for (std::vector<double>* list : {&costs.forward, &costs.input_grad, &costs.weight_grad, &costs.weight_grad_fused,
                                    &costs.backward, &costs.update, &costs.activation_bytes})
    for (double& cost : *list) cost /= parts;
  return costs;
}

void require_costs_fit(const StageCosts& costs, int stages) {
  require_cost_per_stage("F", costs.forward, stages);
  require_cost_per_stage("I", costs.input_grad, stages);
  require_cost_per_stage("W", costs.weight_grad, stages);
  require_cost_per_stage("update", costs.update, stages);
  require_cost_per_stage("the cache saving of F", costs.forward_cache_saving, stages);
  require_cost_per_stage("the cache saving of I", costs.input_grad_cache_saving, stages);
  require_cost_per_stage("the cache saving of W", costs.weight_grad_cache_saving, stages);
  if (!costs.weight_grad_fused.empty()) require_cost_per_stage("a fused W", costs.weight_grad_fused, stages);
  if (!costs.backward.empty()) require_cost_per_stage("B", costs.backward, stages);
  if (!costs.activation_bytes.empty())
    require_cost_per_stage("the bytes of activations", costs.activation_bytes, stages);
  require_cost_per_stage("the reduction over replicas", costs.reduce, stages);
  require_message(costs.message, costs.message_gap);
  require_messages(costs.messages_forward, stages);
  require_messages(costs.messages_backward, stages);
  require_cost("the slowdown in a whole step", costs.terms.slowdown);
  require_cost("the share of a message that occupies its sender", costs.terms.send_share);
  require_cost("a step besides its instructions", costs.terms.per_step);
  require_cost("an instruction's overhead", costs.overhead);
  require<ConfigError>(costs.weight_share >= 0 && costs.weight_share <= 1, "the weight share is ", costs.weight_share,
                       ": it is a part of a micro-batch's activations, from 0 to 1");
}

InstructionTimes::InstructionTimes(const StageCosts& costs, const Schedule& schedule)
    : costs_(costs), stages_(schedule.rank_of_stage.size()), micro_batches_(schedule.micro_batches) {
  require_costs_fit(costs, schedule.stage_count());
  const auto has_gap = [](const MessageCost& message) { return message.gap > 0; };
  has_gaps_ = costs.message_gap > 0 || std::ranges::any_of(costs.messages_forward, has_gap) ||
              std::ranges::any_of(costs.messages_backward, has_gap);
  reduces_ = std::ranges::any_of(costs.reduce, [](double cost) { return cost > 0; });
}

MessageCost InstructionTimes::message(StageId from, StageId to) const {
  const std::vector<MessageCost>& list = from < to ? costs_.messages_forward : costs_.messages_backward;
  if (list.empty()) return {costs_.message, costs_.message_gap};
  const auto at = [&](StageId stage) { return list.begin() + stage.value(); };
  return *std::max_element(at(std::min(from, to)), at(std::max(from, to)),
                           [](const MessageCost& a, const MessageCost& b) { return a.time < b.time; });
}

double InstructionTimes::operator()(const Instruction& instruction, const std::optional<Instruction>& before) const {
  const std::size_t stage = instruction.stage().index();
  const auto with_overhead = [&](double cost) {
    return (1 + costs_.terms.slowdown) * (costs_.overhead + std::max(0.0, cost - cache_saving(instruction, before)));
  };
  switch (instruction.op()) {
    case Op::forward: return with_overhead(value_of_stage(costs_.forward, stage));
    case Op::backward: return with_overhead(backward(stage));
    case Op::input_grad: return with_overhead(value_of_stage(costs_.input_grad, stage));
    case Op::weight_grad: return with_overhead(grouped_weight_grad(stage, instruction.micro_batch_count()));
    case Op::reduce: return costs_.reduce_overlaps ? 0 : reduce(stage);
    case Op::step: return update(stage);
    default: return 0;
  }
}

double InstructionTimes::cache_saving(const Instruction& instruction, const std::optional<Instruction>& before) const {
  if (!before || before->stage() != instruction.stage()) return 0;
  const std::size_t stage = instruction.stage().index();
  const bool parameters = before->op() != Op::weight_grad;
  const bool gradients = before->op() == Op::weight_grad || before->op() == Op::backward;
  const double in_i = parameters ? value_of_stage(costs_.input_grad_cache_saving, stage) : 0,
               in_w = gradients ? value_of_stage(costs_.weight_grad_cache_saving, stage) : 0;
  switch (instruction.op()) {
    case Op::forward: return parameters ? value_of_stage(costs_.forward_cache_saving, stage) : 0;
    case Op::backward: return in_i + in_w;
    case Op::input_grad: return in_i;
    case Op::weight_grad: return in_w;
    default: return 0;
  }
}

double InstructionTimes::backward(std::size_t stage) const {
  if (!costs_.backward.empty()) return value_of_stage(costs_.backward, stage);
  return value_of_stage(costs_.input_grad, stage) + value_of_stage(costs_.weight_grad, stage);
}

double InstructionTimes::grouped_weight_grad(std::size_t stage, int group) const {
  const double single = value_of_stage(costs_.weight_grad, stage);
  const double fused = costs_.weight_grad_fused.empty() ? single : value_of_stage(costs_.weight_grad_fused, stage);
  if (group == 1 || fused == single) return single * group;
  const double missing = static_cast<double>(micro_batches_ - group) / (micro_batches_ - 1);
  return fused * group + (single - fused) * missing;
}

}  // namespace penstock
