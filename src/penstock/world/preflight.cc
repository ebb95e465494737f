#include "penstock/world/preflight.h"

#include <sstream>

#include "penstock/base/error.h"
#include "penstock/transport/records.h"

namespace penstock {
namespace {

enum Topic : std::int32_t { fingerprints, comparison };

Tag tag_of(std::uint32_t pipeline, Topic topic) { return {pipeline, Traffic::control, 0, topic, 0, 0}; }

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

std::vector<bool> compare_ranks(const RankContext& context, const Preflight& preflight) {
  Transport& endpoint = *context.endpoint;
  const Tag ask = tag_of(preflight.pipeline, fingerprints), answer = tag_of(preflight.pipeline, comparison);
  const std::string lines = lines_of(preflight);
  std::string marks = marks_of(preflight);
  // A line with the difference, empty when there is none; then a mark for each node.
  std::string result;
  if (context.rank == WorldRank(0)) {
    std::string differs;
    for (int r = 1; r < context.world_size(); ++r) {
      const std::string theirs = text_in(endpoint.receive(WorldRank(r), ask, "the fingerprint"));
      const std::size_t split_at = theirs.rfind('\n', theirs.size() - 1) + 1;
      if (differs.empty()) differs = difference(lines, theirs.substr(0, split_at), WorldRank(r));
      const std::string their_marks = theirs.substr(split_at);
      if (differs.empty())
        for (std::size_t n = 0; n < marks.size(); ++n)
          if (their_marks[n] == '1') marks[n] = '1';
    }
    result = differs + "\n" + marks;
    for (int r = 1; r < context.world_size(); ++r) endpoint.send(WorldRank(r), answer, message_of(result));
  } else {
    endpoint.send(WorldRank(0), ask, message_of(lines + marks));
    result = text_in(endpoint.receive(WorldRank(0), answer, "the comparison of fingerprints"));
  }
  const std::size_t end_of_line = result.find('\n');
  if (end_of_line > 0) throw ConfigError(result.substr(0, end_of_line));
  std::vector<bool> trains;
  for (char mark : result.substr(1)) trains.push_back(mark == '1');
  return trains;
}

}  // namespace penstock
