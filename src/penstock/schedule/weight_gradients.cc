#include "penstock/schedule/weight_gradients.h"

#include <algorithm>
#include <limits>
#include <map>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/schedule/violation.h"

namespace penstock {

const char* to_string(WeightGradients mode) {
  switch (mode) {
    case WeightGradients::stream: return "stream";
    case WeightGradients::automatic: return "auto";
    case WeightGradients::fused: return "fused";
    case WeightGradients::grouped: return "grouped";
  }
  return "";
}

std::optional<WeightGradients> weight_gradients_named(std::string_view name) {
  for (const auto mode :
       {WeightGradients::stream, WeightGradients::automatic, WeightGradients::fused, WeightGradients::grouped})
    if (name == to_string(mode)) return mode;
  return std::nullopt;
}

WeightGradients weight_gradients_of(const Schedule& schedule) {
  bool is_fused = false, is_whole = true;
  for (const Order& order : schedule.orders)
    for (const Instruction& i : order) {
      if (i.op() != Op::weight_grad) continue;
      is_fused = is_fused || i.is_fused();
      is_whole = is_whole && i.micro_batch_count() == schedule.micro_batches;
    }
  if (!is_fused) return WeightGradients::stream;
  return is_whole ? WeightGradients::fused : WeightGradients::grouped;
}

namespace {

constexpr int unlimited = std::numeric_limits<int>::max();

bool gives_gradient(Op op) { return op == Op::backward || op == Op::input_grad; }

/// `instruction` in its fused form: B becomes I.
Instruction without_weight(const Instruction& instruction) {
  return instruction.op() == Op::backward
             ? Instruction::compute(Op::input_grad, instruction.stage(), instruction.micro_batch())
             : instruction;
}

/// The pending W's of one stage: those whose I's, and all I's of earlier micro-batches, have run.
class Pending {
 public:
  explicit Pending(int micro_batches) : input_done_(static_cast<std::size_t>(micro_batches), false) {}

  void note(MicroBatch i) {
    input_done_[i.index()] = true;
    while (end_.index() < input_done_.size() && input_done_[end_.index()]) end_ = end_.next();
  }
  int count() const { return end_.value() - begin_.value(); }
  bool has_all_inputs() const { return end_.index() == input_done_.size(); }
  Instruction take(StageId stage) {
    const Instruction fused = Instruction::fused_weight_grad(stage, begin_, end_.previous());
    begin_ = end_;
    return fused;
  }

 private:
  std::vector<bool> input_done_;  // by micro-batch: I's may be in any order
  MicroBatch begin_;
  MicroBatch end_;
};

/// By stage of one rank.
using PendingOfRank = std::map<StageId, Pending>;

Pending& note_input(PendingOfRank& pending, const Schedule& schedule, const Instruction& instruction) {
  Pending& of_stage = pending.try_emplace(instruction.stage(), schedule.micro_batches).first->second;
  of_stage.note(instruction.micro_batch());
  return of_stage;
}

/// One rank's list with each W as late as `limit` permits; none if no position of the W's meets the limit.
std::optional<Order> as_late_as_fits(const Schedule& schedule, const Order& order, int limit) {
  PendingOfRank pending;
  std::vector<StageId> ended;  // in the order of their last I
  Order fused;
  int live = 0;
  for (const Instruction& instruction : order) {
    if (instruction.op() == Op::weight_grad) continue;
    if (instruction.op() == Op::forward && live++ >= limit) {
      const auto most = std::max_element(pending.begin(), pending.end(), [](const auto& a, const auto& b) {
        return a.second.count() < b.second.count();
      });
      if (most == pending.end() || most->second.count() == 0) return std::nullopt;
      live -= most->second.count();
      fused.push_back(most->second.take(most->first));
    }
    fused.push_back(without_weight(instruction));
    if (!gives_gradient(instruction.op())) continue;
    const Pending& of_stage = note_input(pending, schedule, instruction);
    if (of_stage.has_all_inputs()) ended.push_back(instruction.stage());
  }
  for (const StageId stage : ended)
    if (Pending& of_stage = pending.at(stage); of_stage.count() > 0) fused.push_back(of_stage.take(stage));
  return fused;
}

/// One rank's list with W's over groups of `size` micro-batches, each at the position of the last W or B of its group.
Order in_groups(const Order& order, const Schedule& schedule, int size) {
  Order fused;
  for (const Instruction& instruction : order) {
    if (instruction.op() != Op::weight_grad) fused.push_back(without_weight(instruction));
    if (instruction.op() != Op::weight_grad && instruction.op() != Op::backward) continue;
    for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next()) {
      const int in_group = i.value() % size;
      if (in_group == size - 1 || i.value() == schedule.micro_batches - 1)
        fused.push_back(Instruction::fused_weight_grad(instruction.stage(), MicroBatch(i.value() - in_group), i));
    }
  }
  return fused;
}

/// The peak of live micro-batches if every W directly follows its I.
int smallest_limit(const Schedule& schedule, const Order& order) {
  PendingOfRank pending;
  int live = 0;
  int peak = 0;
  for (const Instruction& instruction : order) {
    if (instruction.op() == Op::forward) peak = std::max(peak, ++live);
    if (!gives_gradient(instruction.op())) continue;
    Pending& of_stage = note_input(pending, schedule, instruction);
    live -= of_stage.count();
    if (of_stage.count() > 0) of_stage.take(instruction.stage());
  }
  return peak;
}

void require_fusable(const Schedule& schedule) {
  require<ScheduleError>(!schedule.is_lowered(), "schedule '", schedule.name,
                         "' is lowered already: fuse the result of strip(), then lower it");
  require_single_owner(schedule, "fusing");
  auto violation = find_misplaced(schedule);
  if (!violation) violation = find_incomplete(schedule, Dependencies(schedule, chain(schedule.stage_count())));
  if (!violation) violation = find_disorder(schedule);
  require<ScheduleError>(!violation, "this schedule cannot be fused: ", violation ? violation->reason : "");
}

}  // namespace

Schedule fuse_w(const Schedule& schedule, const FuseOptions& options) {
  require<ConfigError>(options.group >= 0, "W in groups of ", options.group,
                       " micro-batches: at least 1 is needed, or 0 for the whole step");
  require<ConfigError>(options.group == 0 || !options.activation_limit, "W in groups of ", options.group,
                       " and as large as an activation limit allows: pass one of the two");
  require<ConfigError>(!options.activation_limit || options.activation_limit->size() == schedule.orders.size(),
                       "the activation limit is given for ",
                       options.activation_limit ? options.activation_limit->size() : 0, " ranks, there are ",
                       schedule.orders.size());
  require_fusable(schedule);
  if (schedule.is_forward_only()) return schedule;

  const bool in_fixed_groups = options.group > 0 && options.group < schedule.micro_batches;
  Schedule fused{schedule.name, schedule.micro_batches, schedule.rank_of_stage, {}};
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank) {
    const Order& order = schedule.orders[rank];
    const int limit = options.activation_limit ? (*options.activation_limit)[rank] : unlimited;
    const std::optional<Order> rewritten =
        in_fixed_groups ? in_groups(order, schedule, options.group) : as_late_as_fits(schedule, order, limit);
    require<ScheduleError>(rewritten.has_value(), "rank ", rank, " may hold ", limit,
                           " live micro-batches, which this schedule exceeds even with single W's: the smallest limits "
                           "that work are ",
                           listed(smallest_fuse_limit(schedule), " "), ", by rank");
    fused.orders.push_back(*rewritten);
  }
  return fused;
}

std::vector<int> smallest_fuse_limit(const Schedule& schedule) {
  require_fusable(schedule);
  std::vector<int> limits;
  for (const Order& order : schedule.orders)
    limits.push_back(schedule.is_forward_only() ? 1 : smallest_limit(schedule, order));
  return limits;
}

}  // namespace penstock
