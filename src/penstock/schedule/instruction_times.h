// The times of instructions, from the costs of stages. Inside this module only.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "penstock/schedule/instruction.h"
#include "penstock/schedule/order.h"
#include "penstock/schedule/stage_costs.h"

namespace penstock {

/// The time of each instruction of a schedule, in the unit of the costs. Stages are given by their index.
class InstructionTimes {
 public:
  /// Of `schedule` only the numbers of stages and of micro-batches count, not its orders. Throws ConfigError like
  /// require_costs_fit().
  InstructionTimes(const StageCosts& costs, const Schedule& schedule);

  std::size_t stages() const { return forward_.size(); }
  int micro_batches() const { return micro_batches_; }

  /// A compute instruction or STEP after `before`, the last compute instruction of its rank; 0 for other instructions.
  double operator()(const Instruction& instruction, const std::optional<Instruction>& before) const;

  /// F, I and W of one micro-batch where nothing is in the cache, and their sum.
  double forward(std::size_t stage) const { return overhead_ + forward_[stage]; }
  double input_grad(std::size_t stage) const { return overhead_ + input_grad_[stage]; }
  double weight_grad(std::size_t stage) const { return overhead_ + weight_grad_[stage]; }
  double micro_batch(std::size_t stage) const { return forward(stage) + input_grad(stage) + weight_grad(stage); }

  double update(std::size_t stage) const { return update_[stage]; }
  double message() const { return message_; }
  double message_gap() const { return message_gap_; }

 private:
  double cache_saving(const Instruction& instruction, const std::optional<Instruction>& before) const;
  double grouped_weight_grad(std::size_t stage, int group) const;

  std::vector<double> forward_, input_grad_, weight_grad_, fused_, backward_, update_, forward_cache_saving_,
      input_grad_cache_saving_, weight_grad_cache_saving_;
  double overhead_;
  double message_;
  double message_gap_;
  int micro_batches_;
};

}  // namespace penstock
