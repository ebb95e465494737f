// The messages that have arrived for one rank, found by who sent them and their tag. Torch-free, so that it
// runs under TSAN with integers for messages.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/ids.h"
#include "penstock/transport/progress.h"
#include "penstock/transport/tag.h"

namespace penstock {

/// A wait or a send ended because some rank aborted the world: a consequence, never the first cause.
class WorldAborted : public TransportError {
 public:
  using TransportError::TransportError;
};

/// How a mailbox waits.
struct Patience {
  /// How long the awaited rank may show no progress.
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  /// How long to look before sleeping. Longer than zero only where every rank has a core to itself.
  std::chrono::nanoseconds spin = std::chrono::nanoseconds(0);

  /// What is awaited is mostly a word of a few milliseconds. To sleep through less than this saves nobody anything, as
  /// the core is the rank's own, and being woken up comes on top: of an MLP's step of 24 ms it took 2, all in all.
  static constexpr std::chrono::milliseconds spin_on_own_core{2};

  /// How often a waiting rank looks after its peer.
  std::chrono::nanoseconds look_every() const {
    return std::min<std::chrono::nanoseconds>(std::chrono::seconds(1), deadline / 4);
  }
};

/// Any thread puts and aborts; one thread, the owner's, takes. Every operation is O(1).
/// A mailbox fills cache lines of its own, so that neighbours in an array do not slow each other down.
template <class Payload>
class alignas(128) Mailbox {
 public:
  Mailbox(WorldRank owner, Patience patience) : owner_(owner), patience_(patience) {
    require<ConfigError>(patience.deadline.count() > 0, "the transport's deadline is ", patience.deadline.count(),
                         " ns: it must be longer than zero");
  }

  /// Stores a message until it is taken. After an abort it is dropped.
  /// Throws InternalError when a message with this tag from this rank already lies here.
  void put(WorldRank from, const Tag& tag, Payload payload) {
    const Address address{from, tag};
    bool awaited = false;
    {
      const std::lock_guard lock(mutex_);
      if (reason_) return;
      const bool fresh = letters_.try_emplace(address, std::move(payload)).second;
      require<InternalError>(fresh, "rank ", from.value(), " sent two messages with one tag to rank ",
                             owner_.value(), " (step ", tag.step, ", stage ", tag.from_stage, " to ", tag.to_stage,
                             ", micro-batch ", tag.micro_batch, ")");
      awaited = awaited_ == address;
      if (awaited) stirred_.store(true, std::memory_order_release);
    }
    if (awaited) arrived_.notify_one();
  }

  /// Waits for the message with `tag` from `from` and removes it.
  /// Throws WorldAborted after an abort, and TransportError when `watch` has seen neither `from` nor those it
  /// waits for get on for the deadline; `waiting_for` is what the error says this rank waits for.
  Payload take(WorldRank from, const Tag& tag, std::string_view waiting_for, PeerWatch& watch) {
    const Address address{from, tag};
    std::unique_lock lock(mutex_);
    if (auto letter = pick_up(address, waiting_for)) return std::move(letter.mapped());
    const Waiting waiting(*this, lock, address, watch);
    if (patience_.spin.count() > 0) {
      lock.unlock();
      spin(watch);
      lock.lock();
    }
    sleep(lock, waiting_for, watch);
    return std::move(pick_up(address, waiting_for).mapped());
  }

  /// Ends the present wait and every later one. The first reason is kept: true when it is this one.
  bool abort(const std::string& reason) {
    {
      const std::lock_guard lock(mutex_);
      if (reason_) return false;
      reason_ = reason;
      letters_.clear();
      stirred_.store(true, std::memory_order_release);
      is_aborted_.store(true, std::memory_order_release);
    }
    arrived_.notify_one();
    return true;
  }

  std::optional<std::string> aborted() const {
    if (!is_aborted_.load(std::memory_order_acquire)) return std::nullopt;
    const std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  struct Address {
    WorldRank from;
    Tag tag;
    friend bool operator==(const Address&, const Address&) = default;
  };
  struct AddressHash {
    std::size_t operator()(const Address& address) const noexcept {
      return std::hash<Tag>{}(address.tag) ^ (std::hash<WorldRank>{}(address.from) * 0x9e3779b97f4a7c15ULL);
    }
  };
  using Letters = std::unordered_map<Address, Payload, AddressHash>;

  /// The time of one wait: what is awaited is known to `put`, and that this rank waits to its peers.
  class Waiting {
   public:
    Waiting(Mailbox& mailbox, std::unique_lock<std::mutex>& lock, const Address& address, PeerWatch& watch)
        : mailbox_(mailbox), lock_(lock), watch_(watch) {
      require<InternalError>(!mailbox_.awaited_, "two threads receive for rank ", mailbox_.owner_.value());
      mailbox_.awaited_ = address;
      mailbox_.stirred_.store(false, std::memory_order_relaxed);
      watch_.wait_begins(address.from);
    }
    ~Waiting() {
      if (!lock_.owns_lock()) lock_.lock();
      mailbox_.awaited_.reset();
      watch_.wait_ends();
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Mailbox& mailbox_;
    std::unique_lock<std::mutex>& lock_;
    PeerWatch& watch_;
  };

  typename Letters::node_type pick_up(const Address& address, std::string_view waiting_for) {
    require<WorldAborted>(!reason_, "rank ", owner_.value(), " gave up waiting for ", waiting_for, ": ",
                          reason_.value_or(""));
    return letters_.extract(address);
  }

  void spin(PeerWatch& watch) const {
    const std::int64_t end = steady_now_ns() + patience_.spin.count();
    while (!stirred_.load(std::memory_order_acquire) && steady_now_ns() < end) {
      watch.look();
#if defined(__x86_64__)
      for (int i = 0; i < 8; ++i) __builtin_ia32_pause();
#endif
      std::this_thread::yield();  // the awaited rank may have been put on this very core
    }
  }

  /// Returns, with the lock held, when the awaited message has arrived or the world has been aborted.
  void sleep(std::unique_lock<std::mutex>& lock, std::string_view waiting_for, PeerWatch& watch) {
    const std::int64_t period = patience_.look_every().count();
    // Late news can be one period old: a peer must have stood still for the deadline before the last question.
    const std::int64_t limit = patience_.deadline.count() + (watch.hears_late() ? period : 0);
    const WorldRank from = awaited_->from;
    std::int64_t looked = steady_now_ns();
    std::int64_t moved = looked;
    if (!stirred_.load(std::memory_order_relaxed)) watch.sleep_begins();
    while (!stirred_.load(std::memory_order_relaxed)) {
      const std::int64_t wake_at = std::min(looked + period, moved + limit);
      arrived_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(wake_at)),
                          [&] { return stirred_.load(std::memory_order_relaxed); });
      if (stirred_.load(std::memory_order_relaxed)) return;
      lock.unlock();
      const std::int64_t now = steady_now_ns();
      // When this rank itself was stopped (debugger, suspended job), the peer could not show its progress.
      if (now - wake_at > period) moved += now - wake_at;
      const WaitChain chain(watch, from);
      moved = std::max(moved, chain.moved_ns());
      require<TransportError>(now - moved < limit, "rank ", owner_.value(), " waits for ", waiting_for, " from ",
                              chain.text(std::chrono::nanoseconds(2 * period)), " (no progress for ",
                              static_cast<double>(patience_.deadline.count()) * 1e-9, " s)");
      watch.ask(from);
      looked = now;
      lock.lock();
    }
  }

  const WorldRank owner_;
  const Patience patience_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  Letters letters_;                 // guarded by mutex_
  std::optional<Address> awaited_;  // guarded by mutex_
  std::optional<std::string> reason_;  // guarded by mutex_
  std::atomic<bool> is_aborted_{false};
  alignas(64) std::atomic<bool> stirred_{false};  // the awaited message is here, or the world is aborted
};

}  // namespace penstock
