#include "penstock/world/collectives.h"

#include <cstring>
#include <sstream>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/transport/transport.h"

namespace penstock {
namespace {

enum CollectivePhase : std::int32_t { to_rank_0, from_rank_0 };

// One line "name=value" per field.
std::string lines_of(const Preflight& preflight) {
  std::string text;
  for (const auto& [field, value] : preflight.fingerprint) text += field + "=" + value + "\n";
  return text;
}

/// Empty when equal.
std::string difference(const std::string& mine, const std::string& theirs, WorldRank rank) {
  std::istringstream a(mine), b(theirs);
  for (std::string own, other; std::getline(a, own);) {
    if (!std::getline(b, other)) other = "nothing";
    if (own == other) continue;
    const std::size_t equals = own.find('=');
    return say("ranks disagree before step 1: ", own.substr(0, equals), " is ", own.substr(equals + 1),
               " on rank 0 and ", other.substr(other.find('=') + 1), " on rank ", rank.value(),
               ": start every rank with the same settings");
  }
  return "";
}

std::string marks_of(const Preflight& preflight) {
  std::string marks(preflight.nodes, '0');
  for (const auto& [node, trains] : preflight.trainable_nodes)
    if (trains) marks[static_cast<std::size_t>(node)] = '1';
  return marks;
}

}  // namespace

std::vector<Message> gather(const RankContext& context, const Tag& tag, Message own, const std::string& waiting_for) {
  if (context.rank != WorldRank(0)) {
    context.endpoint->send(WorldRank(0), in_phase(tag, to_rank_0), std::move(own));
    return {};
  }
  std::vector<Message> all{std::move(own)};
  for (int r = 1; r < context.world_size(); ++r)
    all.push_back(context.endpoint->receive(WorldRank(r), in_phase(tag, to_rank_0), waiting_for));
  return all;
}

Message broadcast(const RankContext& context, const Tag& tag, Message message, const std::string& waiting_for) {
  if (context.rank != WorldRank(0))
    return context.endpoint->receive(WorldRank(0), in_phase(tag, from_rank_0), waiting_for);
  for (int r = 1; r < context.world_size(); ++r)
    context.endpoint->send(WorldRank(r), in_phase(tag, from_rank_0), message);
  return message;
}

Message agree(const RankContext& context, const Tag& tag, Message own,
              const std::function<Message(const std::vector<Message>&)>& decide, const AwaitedMessages& awaited) {
  const std::vector<Message> all = gather(context, tag, std::move(own), awaited.parts);
  return broadcast(context, tag, context.rank == WorldRank(0) ? decide(all) : Message{}, awaited.decision);
}

void report_progress_of(const RankContext& context, const std::string& what) {
  Position position;
  std::strncpy(position.instruction, what.c_str(), sizeof(position.instruction) - 1);
  context.endpoint->report_progress(position);
}

std::vector<bool> compare_ranks(const RankContext& context, const Preflight& preflight) {
  const std::string lines = lines_of(preflight);
  // The difference, empty when there is none, and a mark for each node.
  const auto compare = [&](const std::vector<Message>& all) {
    std::string differs, marks = marks_of(preflight);
    for (std::size_t r = 1; r < all.size() && differs.empty(); ++r) {
      differs = difference(lines, transport::text_in(all[r], 0), WorldRank(static_cast<std::int32_t>(r)));
      const std::string their_marks = transport::text_in(all[r], 1);
      for (std::size_t n = 0; n < marks.size() && differs.empty(); ++n)
        if (their_marks[n] == '1') marks[n] = '1';
    }
    return transport::message_of(differs, marks);
  };
  const Message result = agree(context, control_tag(preflight.pipeline, Topic::settings),
                               transport::message_of(lines, marks_of(preflight)), compare,
                               {.parts = "the fingerprint", .decision = "the comparison of fingerprints"});
  if (const std::string differs = transport::text_in(result, 0); !differs.empty()) throw ConfigError(differs);
  std::vector<bool> trains;
  for (const char mark : transport::text_in(result, 1)) trains.push_back(mark == '1');
  return trains;
}

}  // namespace penstock
