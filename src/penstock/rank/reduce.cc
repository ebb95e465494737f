#include "penstock/rank/reduce.h"

#include "penstock/base/device_copy.h"
#include "penstock/base/split.h"

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

}  // namespace penstock
