#include "penstock/rank/gradient_reducer.h"

#include <algorithm>
#include <compare>
#include <map>
#include <set>
#include <string_view>

#include "penstock/base/device_copy.h"
#include "penstock/base/split.h"
#include "penstock/transport/records.h"

namespace penstock {

namespace {

enum Phase : std::int32_t { gather_parts, spread_sums };

Tag tag_of(const ReplicaGroup& group, Phase phase) {
  Tag tag = group.tag;
  tag.to_stage = phase;
  return tag;
}

}  // namespace

ReplicaGroup replicas_of(const StagePlacement& placement, StageId stage, Traffic traffic, std::uint64_t round) {
  ReplicaGroup group{
      placement.endpoint(), {placement.pipeline(), traffic, round, stage.value(), 0, -1}, placement.replica(), {}};
  for (Replica replica(0); replica.value() < placement.context().replicas; replica = replica.next())
    group.ranks.push_back(placement.holder_of(stage, replica));
  return group;
}

Tensors sum_over_replicas(const ReplicaGroup& group, const Tensors& own, const Tensors& like) {
  const torch::NoGradGuard no_grad;
  const int replicas = static_cast<int>(group.ranks.size());
  if (own.empty() || replicas == 1) return own;

  // One flat tensor, with zeros for undefined gradients, and flags for which gradients are defined.
  Tensors flat_parts;
  torch::Tensor present = torch::zeros({static_cast<std::int64_t>(own.size())}, torch::kBool);
  for (std::size_t i = 0; i < own.size(); ++i) {
    const torch::Tensor part = own[i].defined() ? own[i] : torch::zeros_like(like[i]);
    flat_parts.push_back(as_real(part).reshape({-1}));
    present[static_cast<std::int64_t>(i)] = own[i].defined();
  }
  const torch::Tensor flat = torch::cat(flat_parts);
  const auto part_of = [&](int replica) { return split(flat.numel(), {.index = replica, .of = replicas}); };
  const auto slice = [](const torch::Tensor& all, RowRange range) { return all.narrow(0, range.begin, range.size()); };

  for (int r = 0; r < replicas; ++r)
    if (Replica(r) != group.own)
      group.endpoint.send(group.ranks[static_cast<std::size_t>(r)], tag_of(group, gather_parts),
                          {{{slice(flat, part_of(r)), false}, {present, false}}, 0, 0});
  torch::Tensor sum, any_present;
  for (int r = 0; r < replicas; ++r) {
    torch::Tensor part = slice(flat, part_of(group.own.value())), part_present = present;
    if (Replica(r) != group.own) {
      Message message = group.endpoint.receive(group.ranks[static_cast<std::size_t>(r)], tag_of(group, gather_parts),
                                               "the gradients of REDUCE");
      part = to_device(message.payloads[0].tensor, flat.device());
      part_present = message.payloads[1].tensor;
    }
    sum = sum.defined() ? sum.add_(part) : part.clone();
    any_present = any_present.defined() ? any_present.logical_or(part_present) : part_present;
  }

  torch::Tensor total = torch::empty_like(flat);
  for (int r = 0; r < replicas; ++r)
    if (Replica(r) != group.own)
      group.endpoint.send(group.ranks[static_cast<std::size_t>(r)], tag_of(group, spread_sums), {{{sum, false}}, 0, 0});
  for (int r = 0; r < replicas; ++r)
    slice(total, part_of(r))
        .copy_(Replica(r) == group.own ? sum
                                       : to_device(group.endpoint
                                                       .receive(group.ranks[static_cast<std::size_t>(r)],
                                                                tag_of(group, spread_sums), "the sums of REDUCE")
                                                       .payloads[0]
                                                       .tensor,
                                                   flat.device()));

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

void copy_from_first(const ReplicaGroup& group, const Tensors& values, const std::string& waiting_for) {
  if (values.empty()) return;
  if (group.own != Replica(0)) {
    const Message message = group.endpoint.receive(group.ranks.front(), group.tag, waiting_for);
    for (std::size_t i = 0; i < values.size(); ++i) torch::Tensor(values[i]).copy_(message.payloads[i].tensor);
    return;
  }
  for (std::size_t r = 1; r < group.ranks.size(); ++r) {
    Message message;
    for (const torch::Tensor& value : values) message.payloads.push_back({value.detach().clone(), false});
    group.endpoint.send(group.ranks[r], group.tag, std::move(message));
  }
}

namespace {

enum class Content : std::int32_t { uses, totals, values };

struct Way {
  StageId from;
  StageId to;
  Content content;
};

Tag tag_of(const TieRoute& route, const Way& way) {
  const Traffic traffic = way.content == Content::values ? Traffic::tied_values : Traffic::ties;
  return {route.placement.pipeline(), traffic,        route.round,
          way.from.value(),           way.to.value(), static_cast<std::int32_t>(way.content)};
}

void send(const TieRoute& route, const Way& way, Message message) {
  route.placement.endpoint().send(route.placement.holder_of(way.to), tag_of(route, way), std::move(message));
}

Message receive(const TieRoute& route, const Way& way, const char* what) {
  return route.placement.endpoint().receive(route.placement.holder_of(way.from), tag_of(route, way), what);
}

/// `arrived` on the device of `like`. Between processes tensors arrive on the CPU.
torch::Tensor here(const torch::Tensor& arrived, const torch::Tensor& like) {
  return to_device(arrived, like.device());
}

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

}  // namespace

void send_uses(const TieRoute& route, const Stage& stage) {
  const Gradients& gradients = stage.gradients();
  for (const StageId owner : partners(gradients.parameters(), stage.id(), false)) {
    Message message;
    for (std::size_t i : shared(gradients.parameters(), owner, stage.id()))
      for (std::size_t use : gradients.parameters()[i].uses) message.payloads.push_back({gradients.of_use(use), false});
    send(route, {stage.id(), owner, Content::uses}, std::move(message));
  }
}

Tensors sum_tied(const TieRoute& route, const Stage& stage) {
  const torch::NoGradGuard no_grad;
  const Gradients& gradients = stage.gradients();
  const auto& parameters = gradients.parameters();
  std::map<std::pair<std::size_t, StageId>, Tensors> gathered;  // by parameter and stage: one per use
  for (const StageId user : partners(parameters, stage.id(), true)) {
    const Message message = receive(route, {user, stage.id(), Content::uses}, "the gradients of tied parameters");
    auto payload = message.payloads.begin();
    for (std::size_t i : shared(parameters, stage.id(), user))
      for (const ParameterUse& use : parameters[i].all_uses.list)
        if (use.stage == user) gathered[{i, user}].push_back(here((payload++)->tensor, parameters[i].value));
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

void send_totals(const TieRoute& route, const Stage& stage, const Tensors& totals) {
  const auto& parameters = stage.gradients().parameters();
  for (const StageId user : partners(parameters, stage.id(), true)) {
    Message message;
    // Copies, because optimisers and hooks may change gradients in place, and what is sent must not change.
    for (std::size_t i : shared(parameters, stage.id(), user))
      message.payloads.push_back({totals[i].defined() ? totals[i].clone() : totals[i], false});
    send(route, {stage.id(), user, Content::totals}, std::move(message));
  }
}

void receive_totals(const TieRoute& route, const Stage& stage, Tensors& totals) {
  const auto& parameters = stage.gradients().parameters();
  for (const StageId owner : partners(parameters, stage.id(), false)) {
    const Message message = receive(route, {owner, stage.id(), Content::totals}, "the sums of tied parameters");
    auto payload = message.payloads.begin();
    for (std::size_t i : shared(parameters, owner, stage.id()))
      totals[i] = here((payload++)->tensor, parameters[i].value);
  }
}

void send_values(const TieRoute& route, const Stage& stage) {
  for (const StageId user : partners(stage.state(), stage.id(), true)) {
    Message message;
    for (std::size_t i : shared(stage.state(), stage.id(), user))
      message.payloads.push_back({stage.state()[i].value.detach().clone(), false});
    send(route, {stage.id(), user, Content::values}, std::move(message));
  }
}

void receive_values(const TieRoute& route, const Stage& stage) {
  const torch::NoGradGuard no_grad;
  for (const StageId owner : partners(stage.state(), stage.id(), false)) {
    const Message message = receive(route, {owner, stage.id(), Content::values}, "the values of tied parameters");
    auto payload = message.payloads.begin();
    for (std::size_t i : shared(stage.state(), owner, stage.id())) {
      torch::Tensor value = stage.state()[i].value;
      value.copy_((payload++)->tensor);
    }
  }
}

namespace {

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
  Tensors sums = sum_over_replicas(replicas_of(placement_, stage.id(), traffic, step_), own, like);
  for (std::size_t k = 0; k < chosen.size(); ++k) gradients[chosen[k]] = std::move(sums[k]);
}

void GradientReducer::reduce(const Stage& stage) {
  const auto& parameters = stage.gradients().parameters();
  send_uses(tie_route(), stage);
  std::vector<std::size_t> untied;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (!parameters[i].all_uses.is_tied()) untied.push_back(i);
  // gradients_of() may be set already: local_gradients() sums the uses.
  sum_replicas(stage, Traffic::reduce, untied, gradients_of(stage));
  ties_pending_ = true;
}

void GradientReducer::finish_ties() {
  if (!std::exchange(ties_pending_, false)) return;
  const TieRoute route = tie_route();
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
  Message own = message_of(parts);
  own.payloads.push_back({stacked_scalars(squares, device), false});
  endpoint.send(at(Rank(0)), tag(true, placement_.rank()), std::move(own));
  if (placement_.rank() == Rank(0)) {
    std::vector<std::pair<NormPart, std::int64_t>> all;  // with its index in `values`
    Tensors values;
    for (Rank rank(0); rank.value() < context.stages; rank = rank.next()) {
      const Message message = endpoint.receive(at(rank), tag(true, rank), "gradient norms");
      for (const NormPart& part : records_in<NormPart>(message))
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

}  // namespace penstock
