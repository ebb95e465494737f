// Collective operations of a world's ranks, for everything that is not part of a step: settings, decisions, results.
// Every rank's thread calls the same operation with the same tag. World rank 0 is the one that collects and decides.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/transport/records.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// Returns the messages of all ranks, by world rank, on rank 0; an empty list on the others, which do not wait.
/// `waiting_for` names the awaited messages in errors.
std::vector<Message> gather(const RankContext& context, const Tag& tag, Message own, const std::string& waiting_for);

/// gather() for records (transport/records.h).
template <transport::Record T>
std::vector<std::vector<T>> gather_records(const RankContext& context, const Tag& tag, const std::vector<T>& own,
                                           const std::string& waiting_for) {
  std::vector<std::vector<T>> all;
  for (const Message& message : gather(context, tag, transport::message_of(own), waiting_for))
    all.push_back(transport::records_in<T>(message));
  return all;
}

/// Returns rank 0's `message` on every rank; those of the others are ignored. Rank 0 does not wait.
Message broadcast(const RankContext& context, const Tag& tag, Message message, const std::string& waiting_for);

/// What the ranks wait for during an agreement, as errors name it.
struct AwaitedMessages {
  std::string parts;     // by rank 0: the messages of the others
  std::string decision;  // by the others: that of rank 0
};

/// Gathers the messages of all ranks, calls `decide` with them on rank 0, and returns its result on every rank.
Message agree(const RankContext& context, const Tag& tag, Message own,
              const std::function<Message(const std::vector<Message>&)>& decide, const AwaitedMessages& awaited);

/// Reports `what` as this rank's position to its peers, because measuring takes a while.
void report_progress_of(const RankContext& context, const std::string& what);

/// Names and values that must be equal on every rank, in the same order on every rank. Values contain no line breaks.
using Fingerprint = std::vector<std::pair<std::string, std::string>>;

struct Preflight {
  std::uint32_t pipeline = 0;
  Fingerprint fingerprint;
  std::vector<std::pair<int, bool>> trainable_nodes;  // the nodes of this rank, and whether they train
  std::size_t nodes = 0;                              // number of nodes of the whole graph
};

/// Called on every rank's thread. Returns for each node of the whole graph whether it trains. Throws ConfigError on
/// every rank when a field differs, naming the field, both ranks and both values.
std::vector<bool> compare_ranks(const RankContext& context, const Preflight& preflight);

}  // namespace penstock
