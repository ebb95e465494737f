#include "penstock/rank/replica_sums.h"

#include <algorithm>

#include "penstock/base/device_copy.h"

namespace penstock::rank {
namespace {

constexpr std::size_t least_bucket_bytes = std::size_t{4} << 20;

/// The sums of this replica's rows over all replicas, in replica order, in memory of their own; undefined if no replica
/// has a gradient.
Tensors sums_of_own_rows(const ReplicaGroup& group, const Summands& summands) {
  Tensors sums(summands.size());
  std::vector<bool> are_new(summands.size(), false);  // rather than a replica's own gradient
  for (Replica r(0); r.value() < group.count(); r = r.next()) {
    Message message;
    if (r != group.own()) message = group.receive(r, Phase::parts, "the gradients of REDUCE");
    for (std::size_t i = 0; i < summands.size(); ++i) {
      const Summand& one = summands[i];
      const torch::Tensor part =
          r == group.own() ? one.part(one.rows(group, r)) : to_device(message.payloads[i].tensor, one.like.device());
      if (!part.defined()) continue;
      if (!sums[i].defined()) {
        sums[i] = part;
        continue;
      }
      sums[i] = are_new[i] ? sums[i].add_(part) : sums[i] + part;
      are_new[i] = true;
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i)
    if (sums[i].defined() && !are_new[i]) sums[i] = sums[i].clone();
  return sums;
}

}  // namespace

torch::Tensor as_real(const torch::Tensor& tensor) {
  return tensor.is_complex() ? torch::view_as_real(tensor.resolve_conj()) : tensor;
}

torch::Tensor Summand::part(const ReplicaRows& rows) const {
  return gradient->defined() ? rows.in(as_real(*gradient)) : torch::Tensor();
}

void Summand::put(const ReplicaRows& rows, const torch::Tensor& sum) const {
  if (!sum.defined()) return;
  *gradient = gradient->defined() ? gradient->resolve_conj() : torch::zeros_like(like);
  part(rows).copy_(sum);
}

void send_parts(const ReplicaGroup& group, const Summands& summands) {
  if (summands.empty()) return;
  group.for_each_other([&](Replica r) {
    Message message;
    for (const Summand& one : summands)
      message.payloads.push_back({rows_to_send(one.part(one.rows(group, r))), false, true});
    group.send(r, Phase::parts, std::move(message));
  });
}

void sum_own_rows(const ReplicaGroup& group, const Summands& summands, ReducedRows which) {
  if (summands.empty() || group.count() == 1) return;
  const torch::NoGradGuard no_grad;
  const Tensors sums = sums_of_own_rows(group, summands);
  if (which == ReducedRows::all)
    group.for_each_other([&](Replica r) {
      Message message;
      for (const torch::Tensor& sum : sums) message.payloads.push_back({sum, false});
      group.send(r, Phase::sums, std::move(message));
    });
  for (std::size_t i = 0; i < sums.size(); ++i) summands[i].put(summands[i].rows(group, group.own()), sums[i]);
}

void receive_sums(const ReplicaGroup& group, const Summands& summands) {
  if (summands.empty()) return;
  const torch::NoGradGuard no_grad;
  group.for_each_other([&](Replica r) {
    const Message message = group.receive(r, Phase::sums, "the sums of REDUCE");
    for (std::size_t i = 0; i < summands.size(); ++i)
      summands[i].put(summands[i].rows(group, r), to_device(message.payloads[i].tensor, summands[i].like.device()));
  });
}

std::vector<Bucket> buckets_of(const layers::Gradients& gradients, Departure departure) {
  const auto& parameters = gradients.parameters();
  std::vector<Bucket> buckets;
  Bucket at_end;
  std::size_t bytes = least_bucket_bytes;  // of the last bucket: the first parameter begins one
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const layers::TrainedParameter& parameter = parameters[i];
    if (parameter.all_uses.is_tied()) continue;
    const bool is_early = departure == Departure::in_buckets && parameter.value.is_cpu() &&
                          std::ranges::all_of(parameter.uses, [&](std::size_t use) { return gradients.is_split(use); });
    if (!is_early) {
      at_end.push_back(i);
      continue;
    }
    if (bytes >= least_bucket_bytes) {
      buckets.emplace_back();
      bytes = 0;
    }
    buckets.back().push_back(i);
    bytes += parameter.value.nbytes();
  }
  if (!at_end.empty()) buckets.push_back(std::move(at_end));
  return buckets;
}

}  // namespace penstock::rank
