#include "penstock/rank/gradient_reducer.h"

#include <algorithm>
#include <compare>
#include <set>
#include <string_view>
#include <utility>

#include "penstock/base/device_copy.h"
#include "penstock/base/split.h"
#include "penstock/transport/records.h"

namespace penstock::rank {
namespace {

/// The numbers of a tensor: of a complex one its real and imaginary parts, in a last dimension of size 2.
torch::Tensor as_real(const torch::Tensor& tensor) {
  return tensor.is_complex() ? torch::view_as_real(tensor.resolve_conj()) : tensor;
}

/// What a message between replicas contains. `state` and `buffers` are counted separately.
enum class Phase : std::int32_t { parts, sums, state, buffers };

/// The replicas of a stage of this rank. `round`: the step, or a counter of other operations.
struct ReplicaGroup {
  const StagePlacement& placement;
  StageId stage;
  Traffic traffic;
  std::uint64_t round;

  int count() const { return placement.context().replicas; }
  Replica own() const { return placement.replica(); }
  Tag tag(Phase phase) const {
    return {placement.pipeline(), traffic, round, stage.value(), static_cast<std::int32_t>(phase), -1};
  }
  void send(Replica to, Phase phase, Message message) const {
    placement.endpoint().send(placement.holder_of(stage, to), tag(phase), std::move(message));
  }
  Message receive(Replica from, Phase phase, const char* what) const {
    return placement.endpoint().receive(placement.holder_of(stage, from), tag(phase), what);
  }
};

/// Returns the sums over the replicas of each tensor of `own`; undefined where it is undefined on all replicas. `like`
/// has the tensors' shapes and types, because some of `own` may be undefined. Each replica sums an equal part of the
/// numbers, in replica order, and sends it to all, so that every replica gets the same bits. Called on every replica.
Tensors sum_over_replicas(const ReplicaGroup& group, const Tensors& own, const Tensors& like) {
  const torch::NoGradGuard no_grad;
  if (own.empty() || group.count() == 1) return own;

  // One flat tensor, with zeros for undefined gradients, and flags for which gradients are defined.
  Tensors flat_parts;
  torch::Tensor present = torch::zeros({static_cast<std::int64_t>(own.size())}, torch::kBool);
  for (std::size_t i = 0; i < own.size(); ++i) {
    const torch::Tensor part = own[i].defined() ? own[i] : torch::zeros_like(like[i]);
    flat_parts.push_back(as_real(part).reshape({-1}));
    present[static_cast<std::int64_t>(i)] = own[i].defined();
  }
  const torch::Tensor flat = torch::cat(flat_parts);
  const auto part_of = [&](const torch::Tensor& all, Replica replica) {
    const RowRange range = split(flat.numel(), {.index = replica.value(), .of = group.count()});
    return all.narrow(0, range.begin, range.size());
  };
  const auto for_each_replica = [&](const auto& visit) {
    for (Replica r(0); r.value() < group.count(); r = r.next()) visit(r);
  };

  for_each_replica([&](Replica r) {
    if (r != group.own()) group.send(r, Phase::parts, {{{part_of(flat, r), false}, {present, false}}, 0, 0});
  });
  torch::Tensor sum, any_present;
  for_each_replica([&](Replica r) {
    torch::Tensor part = part_of(flat, group.own()), part_present = present;
    if (r != group.own()) {
      const Message message = group.receive(r, Phase::parts, "the gradients of REDUCE");
      part = to_device(message.payloads[0].tensor, flat.device());
      part_present = message.payloads[1].tensor;
    }
    sum = sum.defined() ? sum.add_(part) : part.clone();
    any_present = any_present.defined() ? any_present.logical_or(part_present) : part_present;
  });

  torch::Tensor total = torch::empty_like(flat);
  for_each_replica([&](Replica r) {
    if (r != group.own()) group.send(r, Phase::sums, {{{sum, false}}, 0, 0});
  });
  for_each_replica([&](Replica r) {
    const bool is_own = r == group.own();
    part_of(total, r).copy_(
        is_own ? sum
               : to_device(group.receive(r, Phase::sums, "the sums of REDUCE").payloads[0].tensor, flat.device()));
  });

  Tensors result;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const torch::Tensor shape = as_real(like[i].detach());
    const bool there = any_present[static_cast<std::int64_t>(i)].item<bool>();
    const torch::Tensor part = total.narrow(0, offset, shape.numel()).view_as(shape).to(shape.scalar_type());
    result.push_back(!there ? torch::Tensor() : like[i].is_complex() ? torch::view_as_complex(part) : part);
    offset += shape.numel();
  }
  return result;
}

/// Overwrites `values`, the same tensors on every replica, with those of replica 0. Called on every replica; replica 0
/// sends and does not wait. `waiting_for` names the awaited message in errors.
void copy_from_first(const ReplicaGroup& group, Phase phase, const Tensors& values, const char* waiting_for) {
  if (values.empty()) return;
  if (group.own() != Replica(0)) {
    const Message message = group.receive(Replica(0), phase, waiting_for);
    for (std::size_t i = 0; i < values.size(); ++i) torch::Tensor(values[i]).copy_(message.payloads[i].tensor);
    return;
  }
  for (Replica r(1); r.value() < group.count(); r = r.next()) {
    Message message;
    for (const torch::Tensor& value : values) message.payloads.push_back({value.detach().clone(), false});
    group.send(r, phase, std::move(message));
  }
}

enum class Content : std::int32_t { uses, totals, values };

struct Way {
  StageId from;
  StageId to;
  Content content;
};

/// The way of messages about tied parameters between the stages of one pipeline replica.
struct TieRoute {
  const StagePlacement& placement;
  std::uint64_t round = 0;  // the step; for values a counter of their synchronisations

  Tag tag(const Way& way) const {
    const Traffic traffic = way.content == Content::values ? Traffic::tied_values : Traffic::ties;
    const auto content = static_cast<std::int32_t>(way.content);
    return {placement.pipeline(), traffic, round, way.from.value(), way.to.value(), content};
  }
  void send(const Way& way, Message message) const {
    placement.endpoint().send(placement.holder_of(way.to), tag(way), std::move(message));
  }
  Message receive(const Way& way, const char* what) const {
    return placement.endpoint().receive(placement.holder_of(way.from), tag(way), what);
  }
};

/// The indices of the tied parameters among `items` (TrainedParameter or Stage::Held) that stage `owner` owns and stage
/// `user` uses, in the order of their names, so that both stages use the same order.
template <class Items>
std::vector<std::size_t> shared(const Items& items, StageId owner, StageId user) {
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const ParameterUses& all_uses = items[i].all_uses;
    if (!all_uses.list.empty() && all_uses.owner() == owner && all_uses.are_on(user)) by_name[items[i].name] = i;
  }
  std::vector<std::size_t> indices;
  for (const auto& [name, index] : by_name) indices.push_back(index);
  return indices;
}

/// The other stages that share parameters among `items` with `stage`: with `is_owner` the users of those that `stage`
/// owns, otherwise the owners of the others.
template <class Items>
std::set<StageId> partners(const Items& items, StageId stage, bool is_owner) {
  std::set<StageId> found;
  for (const auto& item : items) {
    if (item.all_uses.list.empty()) continue;
    const StageId owner = item.all_uses.owner();
    if ((owner == stage) != is_owner) continue;
    found.insert(owner);
    if (is_owner)
      for (const ParameterUse& use : item.all_uses.list) found.insert(use.stage);
  }
  found.erase(stage);
  return found;
}

/// Sends the gradient of every use of `stage` to the parameter's owner stage, where that is another stage.
void send_uses(const TieRoute& route, const Stage& stage) {
  const layers::Gradients& gradients = stage.gradients();
  for (const StageId owner : partners(gradients.parameters(), stage.id(), false)) {
    Message message;
    for (std::size_t i : shared(gradients.parameters(), owner, stage.id()))
      for (std::size_t use : gradients.parameters()[i].uses) message.payloads.push_back({gradients.of_use(use), false});
    route.send({stage.id(), owner, Content::uses}, std::move(message));
  }
}

/// By parameter of `stage`: the sum over all uses in graph order, for tied parameters that this stage owns; undefined
/// for the others, and where no use has a gradient. Waits for the uses of other stages.
Tensors sum_tied(const TieRoute& route, const Stage& stage) {
  const torch::NoGradGuard no_grad;
  const layers::Gradients& gradients = stage.gradients();
  const auto& parameters = gradients.parameters();
  std::map<std::pair<std::size_t, StageId>, Tensors> gathered;  // by parameter and stage: one per use
  for (const StageId user : partners(parameters, stage.id(), true)) {
    const Message message = route.receive({user, stage.id(), Content::uses}, "the gradients of tied parameters");
    auto payload = message.payloads.begin();
    for (std::size_t i : shared(parameters, stage.id(), user))
      for (const ParameterUse& use : parameters[i].all_uses.list)
        if (use.stage == user)
          gathered[{i, user}].push_back(to_device((payload++)->tensor, parameters[i].value.device()));
  }
  Tensors sums(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].all_uses.is_tied() || parameters[i].all_uses.owner() != stage.id()) continue;
    for (std::size_t use : parameters[i].uses) gathered[{i, stage.id()}].push_back(gradients.of_use(use));
    std::map<StageId, std::size_t> next;
    for (const ParameterUse& use : parameters[i].all_uses.list) {
      const torch::Tensor& one = gathered[{i, use.stage}][next[use.stage]++];
      if (!one.defined()) continue;
      sums[i] = sums[i].defined() ? sums[i].add_(one) : one.clone();
    }
  }
  return sums;
}

/// Sends `totals`, by parameter, to the other stages that use the parameters.
void send_totals(const TieRoute& route, const Stage& stage, const Tensors& totals) {
  const auto& parameters = stage.gradients().parameters();
  for (const StageId user : partners(parameters, stage.id(), true)) {
    Message message;
    // Copies, because optimisers and hooks may change gradients in place, and what is sent must not change.
    for (std::size_t i : shared(parameters, stage.id(), user))
      message.payloads.push_back({totals[i].defined() ? totals[i].clone() : totals[i], false});
    route.send({stage.id(), user, Content::totals}, std::move(message));
  }
}

/// Receives the totals of parameters that other stages own into `totals`. Waits.
void receive_totals(const TieRoute& route, const Stage& stage, Tensors& totals) {
  const auto& parameters = stage.gradients().parameters();
  for (const StageId owner : partners(parameters, stage.id(), false)) {
    const Message message = route.receive({owner, stage.id(), Content::totals}, "the sums of tied parameters");
    auto payload = message.payloads.begin();
    for (std::size_t i : shared(parameters, owner, stage.id()))
      totals[i] = to_device((payload++)->tensor, parameters[i].value.device());
  }
}

/// The same for values, including frozen ones: the owner sends them to the other stages that use them.
void send_values(const TieRoute& route, const Stage& stage) {
  for (const StageId user : partners(stage.state(), stage.id(), true)) {
    Message message;
    for (std::size_t i : shared(stage.state(), stage.id(), user))
      message.payloads.push_back({stage.state()[i].value.detach().clone(), false});
    route.send({stage.id(), user, Content::values}, std::move(message));
  }
}

void receive_values(const TieRoute& route, const Stage& stage) {
  const torch::NoGradGuard no_grad;
  for (const StageId owner : partners(stage.state(), stage.id(), false)) {
    const Message message = route.receive({owner, stage.id(), Content::values}, "the values of tied parameters");
    auto payload = message.payloads.begin();
    for (std::size_t i : shared(stage.state(), owner, stage.id())) {
      torch::Tensor value = stage.state()[i].value;
      value.copy_((payload++)->tensor);
    }
  }
}

/// A parameter whose gradient is part of the norm. Ordered as the network first uses the parameters.
struct NormPart {
  static constexpr std::string_view record_name = "NormPart";

  std::int64_t node = 0;       // the first that uses the parameter
  std::int64_t parameter = 0;  // its number among those of the stage

  friend auto operator<=>(const NormPart&, const NormPart&) = default;
};

/// The scalars of `parts` as one tensor.
torch::Tensor stacked_scalars(const Tensors& parts, c10::Device device) {
  return parts.empty() ? torch::empty({0}, torch::TensorOptions(torch::kFloat64).device(device)) : torch::stack(parts);
}

/// The sum of `values` from the first to the last, in `order`.
torch::Tensor ordered_sum(const torch::Tensor& values, const std::vector<std::int64_t>& order) {
  if (order.empty()) return torch::zeros({}, values.options());
  const torch::Tensor indices = to_device(torch::tensor(order), values.device());
  return values.index_select(0, indices).cumsum(0)[-1];
}

}  // namespace

void GradientReducer::begin(const StepJob& job) {
  step_ = job.step;
  if (!job.training || job.is_later_part()) return;
  gradients_.clear();
  for (const auto& stage : stages_) {
    if (job.shares.continues)
      stage->gradients().scale(job.shares.earlier);
    else
      stage->gradients().begin_step();
  }
}

void GradientReducer::clear() {
  gradients_.clear();
  ties_pending_ = false;
}

Tensors& GradientReducer::gradients_of(const Stage& stage) {
  const auto [known, is_new] = gradients_.try_emplace(stage.id());
  if (is_new) known->second = stage.gradients().sum_uses();
  return known->second;
}

Tensors GradientReducer::take(const Stage& stage) {
  Tensors gradients = std::move(gradients_of(stage));
  gradients_.erase(stage.id());
  return gradients;
}

// Replaces the gradients with the indices `chosen` by their sums over the replicas. `gradients` are by parameter of
// `stage`.
void GradientReducer::sum_replicas(const Stage& stage, Traffic traffic, const std::vector<std::size_t>& chosen,
                                   Tensors& gradients) {
  Tensors own, like;
  for (const std::size_t i : chosen) {
    own.push_back(gradients[i]);
    like.push_back(stage.gradients().parameters()[i].value);
  }
  Tensors sums = sum_over_replicas({placement_, stage.id(), traffic, step_}, own, like);
  for (std::size_t k = 0; k < chosen.size(); ++k) gradients[chosen[k]] = std::move(sums[k]);
}

void GradientReducer::reduce(const Stage& stage) {
  const auto& parameters = stage.gradients().parameters();
  send_uses({placement_, step_}, stage);
  std::vector<std::size_t> untied;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (!parameters[i].all_uses.is_tied()) untied.push_back(i);
  // gradients_of() may be set already: local_gradients() sums the uses.
  sum_replicas(stage, Traffic::reduce, untied, gradients_of(stage));
  ties_pending_ = true;
}

void GradientReducer::finish_ties() {
  if (!std::exchange(ties_pending_, false)) return;
  const TieRoute route{placement_, step_};
  for (const auto& stage : stages_) {
    const auto& parameters = stage->gradients().parameters();
    Tensors totals = sum_tied(route, *stage);
    std::vector<std::size_t> owned_here;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].all_uses.is_tied() && parameters[i].all_uses.owner() == stage->id()) owned_here.push_back(i);
    if (owned_here.empty()) continue;
    sum_replicas(*stage, Traffic::ties, owned_here, totals);
    for (const std::size_t i : owned_here) gradients_[stage->id()][i] = totals[i];
    send_totals(route, *stage, totals);
  }
  for (const auto& stage : stages_) receive_totals(route, *stage, gradients_[stage->id()]);
}

void GradientReducer::divide(double divisor) {
  const torch::NoGradGuard no_grad;
  for (const auto& stage : stages_)
    for (torch::Tensor& gradient : gradients_of(*stage))
      if (gradient.defined()) gradient = gradient / divisor;  // not in place: copies share it
}

// Every rank sends the squared norm of each of its gradients (of a tied parameter only its owner) to the first rank,
// which sums them in the order in which the network uses the parameters and sends the sum to all.
torch::Tensor GradientReducer::norm(c10::Device device) {
  const torch::NoGradGuard no_grad;
  std::vector<NormPart> parts;
  Tensors squares;
  for (const auto& stage : stages_) {
    const Tensors& gradients = gradients_of(*stage);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const ParameterUses& all_uses = stage->gradients().parameters()[i].all_uses;
      if (!gradients[i].defined() || all_uses.owner() != stage->id()) continue;
      parts.push_back({all_uses.list.front().node, static_cast<std::int64_t>(i)});
      squares.push_back(as_real(gradients[i]).norm(2, torch::kFloat64).square());
    }
  }
  DataPlane& endpoint = placement_.endpoint();
  const RankContext& context = placement_.context();
  const auto tag = [&](bool up, Rank rank) {
    return Tag{placement_.pipeline(), Traffic::reduce, step_, placement_.stage_count(), up ? 0 : 1, rank.value()};
  };
  const auto at = [&](Rank rank) { return context.rank_of(rank, placement_.replica()); };
  Message own = transport::message_of(parts);
  own.payloads.push_back({stacked_scalars(squares, device), false});
  endpoint.send(at(Rank(0)), tag(true, placement_.rank()), std::move(own));
  if (placement_.rank() == Rank(0)) {
    std::vector<std::pair<NormPart, std::int64_t>> all;  // with its index in `values`
    Tensors values;
    for (Rank rank(0); rank.value() < context.stages; rank = rank.next()) {
      const Message message = endpoint.receive(at(rank), tag(true, rank), "gradient norms");
      for (const NormPart& part : transport::records_in<NormPart>(message))
        all.emplace_back(part, static_cast<std::int64_t>(all.size()));
      values.push_back(to_device(message.payloads[1].tensor, device));
    }
    std::sort(all.begin(), all.end());
    std::vector<std::int64_t> order;
    for (const auto& [part, index] : all) order.push_back(index);
    const torch::Tensor norm = ordered_sum(torch::cat(values), order).sqrt();
    for (Rank rank(0); rank.value() < context.stages; rank = rank.next())
      endpoint.send(at(rank), tag(false, rank), {{{norm, false}}});
  }
  const Message total = endpoint.receive(at(Rank(0)), tag(false, placement_.rank()), "the gradient norm");
  return to_device(total.payloads.front().tensor, device);
}

void StateCopies::share_buffers(const StepJob& job) {
  if (job.training) buffers_differ_ = true;
  if (job.training || !std::exchange(buffers_differ_, false)) return;
  const torch::NoGradGuard no_grad;
  for (const auto& stage : stages_) {
    Tensors buffers;
    for (const Stage::Held& held : stage->state())
      if (held.all_uses.list.empty()) buffers.push_back(held.value);
    copy_from_first({placement_, stage->id(), Traffic::control, job.step}, Phase::buffers, buffers,
                    "the buffers of replica 0");
  }
}

Tensors StateCopies::buffers() const {
  Tensors buffers;
  for (const auto& stage : stages_)
    for (const Stage::Held& held : stage->state())
      if (held.is_buffer()) buffers.push_back(held.value);
  return buffers;
}

void StateCopies::keep_buffers(const StepJob& job) {
  are_kept_ = job.training && job.part == StepPart::whole;
  if (!are_kept_) return;
  const torch::NoGradGuard no_grad;
  const Tensors now = buffers();
  if (kept_.empty())
    for (const torch::Tensor& buffer : now) kept_.push_back(torch::empty_like(buffer));
  for (std::size_t i = 0; i < now.size(); ++i) kept_[i].copy_(now[i]);
}

void StateCopies::restore_buffers() {
  if (!are_kept_) return;
  const torch::NoGradGuard no_grad;
  const Tensors now = buffers();
  for (std::size_t i = 0; i < now.size(); ++i) torch::Tensor(now[i]).copy_(kept_[i]);
}

void StateCopies::synchronise(std::uint64_t round) {
  const torch::NoGradGuard no_grad;
  const TieRoute route{placement_, round};
  if (placement_.replica() == Replica(0)) {
    for (const auto& stage : stages_) send_values(route, *stage);
    for (const auto& stage : stages_) receive_values(route, *stage);
  }
  for (const auto& stage : stages_) {
    Tensors values;
    for (const Stage::Held& held : stage->state()) values.push_back(held.value);
    copy_from_first({placement_, stage->id(), Traffic::control, round}, Phase::state, values,
                    "the parameters of replica 0");
  }
}

}  // namespace penstock::rank
