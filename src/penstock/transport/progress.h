// The status of every rank (its instruction, since when, its last sign of life), so that a wait can distinguish a slow
// peer from one that is dead, stopped or stuck. Torch-free.
//
// A sign of life is not progress. A live process answers questions whatever its rank does, however long an instruction
// takes. A rank makes progress when it begins an instruction, sends or receives. A waiting rank depends on the rank
// that it waits for, and so forth along the chain of waits. liveness.h defines when a wait fails.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iomanip>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "penstock/base/clock.h"
#include "penstock/base/ids.h"
#include "penstock/transport/tag.h"

namespace penstock::transport {

/// The latest known state of one rank. All times are on the steady clock of the rank that reads it.
struct PeerStatus {
  Position position;
  std::int64_t since_ns = 0;           // when it began this instruction
  std::int64_t moved_ns = 0;           // when it last made progress
  std::int64_t heard_ns = 0;           // when this status was received
  std::optional<WorldRank> waits_for;  // the rank that it waits for, if it waits
};

/// "at 0F5 in step 7"; without a name of the instruction "in step 7", outside of steps "at start".
inline std::string place_of(const Position& position) {
  std::ostringstream out;
  if (*position.instruction) out << "at " << position.instruction;
  if (*position.instruction && position.step >= 0) out << " ";
  if (position.step >= 0) out << "in step " << position.step;
  return out.str();
}

/// "at 0F5 in step 7 since 12.0 s", at the time `now_ns`.
inline std::string place_of(const PeerStatus& status, std::int64_t now_ns) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << place_of(status.position) << " since " << to_s(now_ns - status.since_ns)
      << " s";
  return out.str();
}

/// A rank's signs of life as seen by this process. Ranks of one process always live.
struct Contact {
  std::int64_t unanswered_ns = 0;  // when the oldest question without an answer was asked; 0: all are answered
  std::int64_t heard_ns = 0;       // when a message or an answer last came from it; 0: never
  std::optional<Tag> sent;         // of its newest message of a step
  std::int64_t sent_ns = 0;        // when that came
  bool has_ended = false;          // its process

  /// Records that a message with `tag` has come at `now`.
  void heard(const Tag& tag, std::int64_t now) {
    if (!counts_steps(tag) || (sent && tag.step < sent->step)) return;  // messages overtake each other
    sent = tag;
    sent_ns = now;
  }
};

/// "at 0F5 in step 7", as the rank last answered, or "heard of at 0SEND_F5 in step 7", as its last message says; empty
/// if nothing is known.
inline std::string last_place_of(const std::optional<PeerStatus>& status, const Contact& contact) {
  if (status && status->heard_ns >= contact.sent_ns) return place_of(status->position);
  return contact.sent ? "heard of " + place_of(sending_position(*contact.sent)) : "";
}

/// The position of one rank, as the rank records it. Written by its thread (`move` by any), read by all; never locks.
class alignas(128) Progress {
 public:
  Progress() {
    moved_ns_.store(now_ns(), std::memory_order_relaxed);
    since_ns_.store(now_ns(), std::memory_order_relaxed);
    write(Position{});
  }

  /// Records that the rank begins an instruction. Costs about one reading of the clock.
  void report(const Position& position) noexcept {
    const std::int64_t now = now_ns();
    const std::uint32_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);  // odd: being written
    write(position);
    since_ns_.store(now, std::memory_order_release);
    step_.store(position.step, std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
    moved_ns_.store(now, std::memory_order_relaxed);
  }

  /// Records progress within the instruction: the rank sent or received.
  void move() noexcept { moved_ns_.store(now_ns(), std::memory_order_relaxed); }

  void wait_begins(WorldRank peer) noexcept { waits_for_.store(peer.value(), std::memory_order_relaxed); }
  /// A rank that waits no longer has moved, for every reader: its wait may have been long.
  void wait_ends() noexcept {
    move();
    waits_for_.store(nobody, std::memory_order_release);
  }

  PeerStatus read() const noexcept {
    PeerStatus status;
    std::array<std::uint64_t, 4> words{};
    std::uint32_t before = 0;
    do {
      before = version_.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = text_[i].load(std::memory_order_acquire);
      status.since_ns = since_ns_.load(std::memory_order_acquire);
      status.position.step = step_.load(std::memory_order_acquire);
    } while (before % 2 != 0 || before != version_.load(std::memory_order_relaxed));
    std::memcpy(status.position.instruction, words.data(), sizeof(status.position.instruction));
    const std::int32_t peer = waits_for_.load(std::memory_order_acquire);
    status.moved_ns = moved_ns_.load(std::memory_order_relaxed);
    status.heard_ns = now_ns();
    if (peer != nobody) status.waits_for = WorldRank(peer);
    return status;
  }

 private:
  static constexpr std::int32_t nobody = -1;
  static_assert(sizeof(Position::instruction) == 4 * sizeof(std::uint64_t));

  void write(const Position& position) noexcept {
    std::array<std::uint64_t, 4> words{};
    std::memcpy(words.data(), position.instruction, sizeof(position.instruction));
    for (std::size_t i = 0; i < words.size(); ++i) text_[i].store(words[i], std::memory_order_release);
  }

  std::atomic<std::uint32_t> version_{0};
  std::atomic<std::int32_t> waits_for_{nobody};
  std::atomic<std::int64_t> since_ns_{0};
  std::atomic<std::int64_t> moved_ns_{0};
  std::atomic<std::int64_t> step_{-1};
  std::array<std::atomic<std::uint64_t>, 4> text_{};
};

/// How a waiting rank reads the status of others: from a shared table among threads, by questions among processes.
class PeerWatch {
 public:
  virtual ~PeerWatch() = default;

  /// Called around every wait that does not end at once.
  virtual void wait_begins(WorldRank peer) = 0;
  virtual void wait_ends() = 0;
  /// Called repeatedly while the waiting thread spins; may receive the message.
  virtual void poll() {}
  /// Called when the waiting thread stops spinning: it sleeps until the wait ends.
  virtual void sleep_begins() {}

  /// Asks for the status of `peer` and of the ranks that it waits for. Returns at once; status() returns the answers
  /// once they arrive.
  virtual void ask(WorldRank peer) = 0;
  /// The latest status of `rank`; none where no answer has arrived yet.
  virtual std::optional<PeerStatus> status(WorldRank rank) const = 0;
  /// Whether status() returns the answer to an earlier ask() rather than the present state.
  virtual bool status_is_delayed() const = 0;
  /// When `rank` last gave a sign of life.
  virtual Contact contact(WorldRank) const { return {}; }
};

/// The status of `first`, of the rank it waits for, and so on: to the end of the chain, to a rank without a known
/// status, or once around a circle.
struct WaitChain {
  struct Link {
    WorldRank rank;
    std::optional<PeerStatus> status;
    Contact contact;
  };
  std::vector<Link> links;
  std::optional<WorldRank> circle;  // the first rank that the chain contains twice

  WaitChain(const PeerWatch& watch, WorldRank first) {
    for (WorldRank rank = first;;) {
      links.push_back({rank, watch.status(rank), watch.contact(rank)});
      const auto& status = links.back().status;
      if (!status || !status->waits_for) return;
      rank = *status->waits_for;
      const auto known = [&](const Link& link) { return link.rank == rank; };
      if (std::any_of(links.begin(), links.end(), known)) {
        circle = rank;
        return;
      }
    }
  }

  /// When a rank in the chain last made progress; 0 when no status is known.
  std::int64_t moved_ns() const {
    std::int64_t latest = 0;
    for (const Link& link : links)
      if (link.status) latest = std::max(latest, link.status->moved_ns);
    return latest;
  }

  /// The link with the oldest unanswered question; null when all have answered. Sets `silent_ns` to the time since that
  /// question, or since `floor_ns` where that is later.
  const Link* longest_silent(std::int64_t now, std::int64_t floor_ns, std::int64_t& silent_ns) const {
    const Link* longest = nullptr;
    silent_ns = 0;
    for (const Link& link : links) {
      if (link.contact.unanswered_ns == 0) continue;
      const std::int64_t silent = now - std::max(link.contact.unanswered_ns, floor_ns);
      if (longest && silent <= silent_ns) continue;
      longest = &link;
      silent_ns = silent;
    }
    return longest;
  }

  /// "rank 0, which is at 0F5 in step 7 since 12.0 s", and so on along the chain. The text says so where a question has
  /// been unanswered for longer than `stale`, or a status is older than that.
  std::string text(std::chrono::nanoseconds stale) const {
    std::ostringstream out;
    out << std::fixed << std::setprecision(1);
    const std::int64_t now = now_ns();
    for (std::size_t i = 0; i < links.size(); ++i) {
      out << (i == 0 ? "rank " : ", waiting for rank ") << links[i].rank.value();
      describe(links[i], now, stale.count(), out);
    }
    if (circle) out << ", waiting for rank " << circle->value() << ": a circle";
    return out.str();
  }

 private:
  static void describe(const Link& link, std::int64_t now, std::int64_t stale, std::ostream& out) {
    const auto& [rank, status, contact] = link;
    const auto seconds_since = [&](std::int64_t ns) { return to_s(now - ns); };
    const bool is_silent = contact.unanswered_ns > 0 && now - contact.unanswered_ns > stale;
    if (status && !is_silent && now - status->heard_ns <= stale) {
      if (is_end(status->position))
        out << ", which has left the world";
      else
        out << ", which is " << place_of(*status, now);
      return;
    }
    const std::int64_t heard = std::max(status ? status->heard_ns : 0, contact.heard_ns);
    if (heard == 0) {
      out << ", which has never answered";
      return;
    }
    const std::int64_t asked = std::max(heard, contact.unanswered_ns);
    out << ", which has not responded for " << seconds_since(asked) << " s, last ";
    if (const std::string place = last_place_of(status, contact); !place.empty())
      out << place;
    else
      out << "heard of " << seconds_since(heard) << " s ago";
  }
};

}  // namespace penstock::transport
