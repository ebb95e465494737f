#include "penstock/autotune/host_links.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include "penstock/base/clock.h"
#include "penstock/world/collectives.h"

namespace penstock {
namespace {

constexpr int short_count = 16, long_count = 3;
constexpr std::int64_t short_bytes = 4;
/// Long messages grow until one takes this time, which hides what a network stores on the way.
constexpr double long_ms = 50;
constexpr std::int64_t first_bytes = 256 << 10, growth = 4, most_bytes = 64 << 20;

/// The speed of one link; 0 bytes per ms where it is within a host.
struct LinkRecord {
  static constexpr std::string_view record_name = "LinkRecord";
  double bytes_per_ms = 0;
  double latency_ms = 0;
};

/// The two ends of one link. The asking rank sends messages, which the other one returns, then one without contents.
class LinkEnds {
 public:
  LinkEnds(DataPlane& endpoint, const Tag& tag) : endpoint_(endpoint), tag_(tag) {}

  LinkSpeed ask(WorldRank other) {
    const auto trips = [&](int count, std::int64_t bytes) {
      std::vector<RoundTrip> all;
      for (int i = 0; i < count; ++i) all.push_back(trip(other, bytes));
      return all;
    };
    const std::vector<RoundTrip> short_trips = trips(short_count, short_bytes);
    std::int64_t bytes = first_bytes;
    while (trip(other, bytes).ms < 2 * long_ms && bytes < most_bytes) bytes *= growth;
    const LinkSpeed speed = speed_of(short_trips, trips(long_count, bytes));
    endpoint_.send(other, next_tag(), {});
    return speed;
  }

  void answer(WorldRank asking) {
    for (;;) {
      Message message = endpoint_.receive(asking, next_tag(), "a message that measures the link between two hosts");
      if (message.payloads.empty()) return;
      endpoint_.send(asking, next_tag(), std::move(message));
    }
  }

 private:
  RoundTrip trip(WorldRank other, std::int64_t bytes) {
    Message message{{{torch::zeros({bytes}, torch::kByte)}}};
    const std::int64_t begin = now_ns();
    endpoint_.send(other, next_tag(), std::move(message));
    endpoint_.receive(other, next_tag(), "the answer that measures the link between two hosts");
    return {static_cast<double>(bytes), static_cast<double>(now_ns() - begin) * 1e-6};
  }
  Tag next_tag() {
    ++tag_.micro_batch;
    return tag_;
  }

  DataPlane& endpoint_;
  Tag tag_;
};

Message slowest_of(const std::vector<Message>& all) {
  LinkRecord slowest;
  for (const Message& message : all) {
    const auto link = record_in<LinkRecord>(message);
    if (link.bytes_per_ms == 0) continue;
    slowest.bytes_per_ms =
        slowest.bytes_per_ms == 0 ? link.bytes_per_ms : std::min(slowest.bytes_per_ms, link.bytes_per_ms);
    slowest.latency_ms = std::max(slowest.latency_ms, link.latency_ms);
  }
  return message_of(slowest);
}

/// Each link by itself, from the first to the last: a rank answers on the one before it asks on the other.
LinkRecord measured_by(const RankContext& context, std::uint32_t pipeline) {
  LinkRecord own;
  const auto tag_of = [&](Rank asking) {
    Tag tag = control_tag(pipeline, Topic::host_links, /*round=*/1);
    tag.to_stage = asking.value();
    return tag;
  };
  if (context.replica() != Replica(0)) return own;
  const auto other = [&](int distance) -> std::optional<WorldRank> {
    const Rank rank(context.pipeline_rank().value() + distance);
    if (rank.value() < 0 || rank.value() >= context.stages) return std::nullopt;
    const WorldRank found = context.rank_of(rank, Replica(0));
    return context.endpoint->shares_host(found) ? std::nullopt : std::optional(found);
  };
  if (const auto asking = other(-1))
    LinkEnds(*context.endpoint, tag_of(Rank(context.pipeline_rank().value() - 1))).answer(*asking);
  if (const auto asked = other(1)) {
    const LinkSpeed speed = LinkEnds(*context.endpoint, tag_of(context.pipeline_rank())).ask(*asked);
    own = {speed.bytes_per_unit, speed.latency};
  }
  return own;
}

}  // namespace

LinkSpeed speed_of(const std::vector<RoundTrip>& short_trips, const std::vector<RoundTrip>& long_trips) {
  const auto shortest = [](const std::vector<RoundTrip>& trips) {
    return *std::ranges::min_element(trips, {}, &RoundTrip::ms);
  };
  const RoundTrip small = shortest(short_trips), large = shortest(long_trips);
  // A long message that takes no longer than a short one has bytes that cost nothing.
  const double ms = large.ms - small.ms;
  return {.bytes_per_unit = ms > 0 ? 2 * (large.bytes - small.bytes) / ms : 0, .latency = small.ms / 2};
}

std::optional<LinkSpeed> speed_between_hosts(World& world) {
  const std::uint32_t pipeline = world.next_pipeline();
  LinkRecord slowest;
  world.run_on_local_ranks([&](const RankContext& context) {
    const LinkRecord own = measured_by(context, pipeline);
    const Message agreed = agree(context, control_tag(pipeline, Topic::host_links, /*round=*/0), message_of(own),
                                 slowest_of, {"the speed of links between hosts", "the slowest link between hosts"});
    if (context.collects) slowest = record_in<LinkRecord>(agreed);
  });
  if (slowest.bytes_per_ms == 0) return std::nullopt;
  return LinkSpeed{slowest.bytes_per_ms, slowest.latency_ms};
}

}  // namespace penstock
