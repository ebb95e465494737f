// Gathers records, steps and tensors of all ranks of a world on rank 0.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/trace/recorder.h"
#include "penstock/transport/records.h"
#include "penstock/world/gather_tag.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// Called on every rank's thread with its own message. Returns those of all ranks, by world rank, on rank 0; an empty
/// list on the others. `waiting_for` names the awaited messages in errors.
std::vector<Message> gather(const RankContext& context, const GatherTag& tag, Message own,
                            const std::string& waiting_for);

/// The same for records (transport/records.h).
template <Record T>
std::vector<std::vector<T>> gather_records(const RankContext& context, const GatherTag& tag, const std::vector<T>& own,
                                           const std::string& waiting_for) {
  std::vector<std::vector<T>> all;
  for (const Message& message : gather(context, tag, message_of(own), waiting_for))
    all.push_back(records_in<T>(message));
  return all;
}

/// Called on every rank's thread with its own steps. Returns those of all ranks, by world rank, with times on the clock
/// of rank 0's host; on other ranks an empty list.
std::vector<std::vector<RankStep>> gather_steps(const RankContext& context, const GatherTag& tag,
                                                const std::vector<RankStep>& own);

/// Called on every rank's thread with its own named tensors (none on replicas other than the first). Returns copies of
/// all of them on rank 0, and an empty map on the others.
std::map<std::string, torch::Tensor> gather_tensors(const RankContext& context, const GatherTag& tag,
                                                    const std::vector<std::pair<std::string, torch::Tensor>>& own);

}  // namespace penstock
