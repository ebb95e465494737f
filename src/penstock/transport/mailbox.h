// The messages that have arrived for one rank, stored by sender and tag: those for its own thread, and those for each
// thread that writes checkpoints. Torch-free, so that it runs under the thread
// sanitizer with integers for messages.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/ids.h"
#include "penstock/transport/adaptive_spin.h"
#include "penstock/transport/control_plane.h"
#include "penstock/transport/liveness.h"
#include "penstock/transport/progress.h"
#include "penstock/transport/tag.h"

namespace penstock::transport {

/// Any thread may call put(), abort() and cancel(); only the owner's thread may call take(). put() and take() are O(1).
/// A mailbox has its own cache lines, so that neighbours in an array do not slow each other down.
template <class Content>
class alignas(128) Mailbox {
 public:
  /// Throws ConfigError unless the deadline of `policy` is above zero.
  Mailbox(WorldRank owner, WaitPolicy policy)
      : owner_(owner), policy_(policy), adaptive_spin_(policy.spin, policy.adapts) {
    require<ConfigError>(policy.deadline.count() > 0, "the transport's deadline is ", policy.deadline.count(),
                         " ns: it must be longer than zero");
  }

  /// Stores a message until it is taken. After an abort, or when its step was cancelled, the message is dropped.
  /// Throws InternalError when the mailbox already contains a message with this tag from this rank.
  void put(WorldRank from, const Tag& tag, Content content) {
    const Address address{from, tag};
    bool awaited = false;
    {
      const std::lock_guard lock(mutex_);
      if (reason_ || cancellation(tag)) return;
      const bool fresh = messages_.try_emplace(address, std::move(content)).second;
      require<InternalError>(fresh, "rank ", from.value(), " sent two messages with one tag to rank ", owner_.value(),
                             " (step ", tag.step, ", stage ", tag.from_stage, " to ", tag.to_stage, ", micro-batch ",
                             tag.micro_batch, ")");
      awaited = awaited_ == address;
      if (awaited) wake_.store(true, std::memory_order_release);
    }
    if (awaited) arrived_.notify_one();
  }

  /// Waits for the message with `tag` from `from` and removes it.
  /// Throws WorldAborted after an abort, StepCancelled when the message's step was cancelled, and TransportError when
  /// the wait has failed (liveness.h); `waiting_for` names the awaited message in the error.
  Content take(WorldRank from, const Tag& tag, std::string_view waiting_for, PeerWatch& watch) {
    const Address address{from, tag};
    std::unique_lock lock(mutex_);
    if (auto message = pick_up(address, waiting_for)) return std::move(message.mapped());
    const Waiting waiting(*this, lock, address, watch);
    if (const std::int64_t begin = now_ns(), allowed = adaptive_spin_.allowed_ns(begin); allowed > 0) {
      lock.unlock();
      spin(begin, allowed, watch);
      lock.lock();
    }
    sleep(lock, waiting_for, watch);
    return std::move(pick_up(address, waiting_for).mapped());
  }

  /// Whether the message with `tag` from `from` waits here. May be called from any thread.
  bool contains(WorldRank from, const Tag& tag) const {
    const std::lock_guard lock(mutex_);
    return messages_.contains({from, tag});
  }

  /// Ends the present wait and every later one. Returns whether this is the first abort; later reasons are ignored.
  bool abort(const std::string& reason) {
    {
      const std::lock_guard lock(mutex_);
      if (reason_) return false;
      reason_ = reason;
      messages_.clear();
      wake_.store(true, std::memory_order_release);
      is_aborted_.store(true, std::memory_order_release);
    }
    arrived_.notify_one();
    return true;
  }

  /// Ends the present wait and every later one for messages of `step`, and drops such messages, also those that arrive
  /// later. Returns whether the step was not cancelled before.
  bool cancel(const StepKey& step, const std::string& reason) {
    {
      const std::lock_guard lock(mutex_);
      if (reason_ || !cancelled_.emplace(step, reason).second) return false;
      // No rank sends messages of steps that are this much older.
      std::erase_if(cancelled_, [&](const auto& old) {
        return old.first.pipeline == step.pipeline && old.first.kind == step.kind &&
               old.first.number + remembered_steps < step.number;
      });
      std::erase_if(messages_, [&](const auto& message) { return belongs(message.first.tag, step); });
      if (!awaited_ || !belongs(awaited_->tag, step)) return true;
      wake_.store(true, std::memory_order_release);
    }
    arrived_.notify_one();
    return true;
  }

  /// The reason of the abort; none where there was none. May be called from any thread.
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
  static constexpr std::uint64_t remembered_steps = 1000;
  using Messages = std::unordered_map<Address, Content, AddressHash>;

  /// The scope of one wait: put() sees the awaited address, and peers see that this rank waits.
  class Waiting {
   public:
    Waiting(Mailbox& mailbox, std::unique_lock<std::mutex>& lock, const Address& address, PeerWatch& watch)
        : mailbox_(mailbox), lock_(lock), watch_(watch) {
      require<InternalError>(!mailbox_.awaited_, "two threads receive for rank ", mailbox_.owner_.value());
      mailbox_.awaited_ = address;
      mailbox_.wake_.store(false, std::memory_order_relaxed);
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

  typename Messages::node_type pick_up(const Address& address, std::string_view waiting_for) {
    require<WorldAborted>(!reason_, "rank ", owner_.value(), " gave up waiting for ", waiting_for, ": ",
                          reason_.value_or(""));
    if (const auto* cancelled = cancellation(address.tag)) {
      if (cancelled->first.kind == WorkKind::all) throw PipelineCancelled(cancelled->second);
      throw StepCancelled(cancelled->second);
    }
    return messages_.extract(address);
  }

  void spin(std::int64_t begin, std::int64_t allowed, PeerWatch& watch) {
    std::int64_t now = begin;
    bool goes_on = true;
    while (goes_on && !wake_.load(std::memory_order_acquire) && now - begin < allowed) {
      watch.poll();
      const std::int64_t polled = now_ns();  // the time of a poll that carries a message is not counted as late
#if defined(__x86_64__)
      for (int i = 0; i < 8; ++i) __builtin_ia32_pause();
#endif
      std::this_thread::yield();  // the awaited rank may have been scheduled on this core
      now = now_ns();
      goes_on = adaptive_spin_.goes_on(now, now - polled);
    }
    adaptive_spin_.ended(now - begin, wake_.load(std::memory_order_acquire));
  }

  /// Returns, with the lock held, when the awaited message has arrived, or after an abort or a cancellation.
  void sleep(std::unique_lock<std::mutex>& lock, std::string_view waiting_for, PeerWatch& watch) {
    WaitGuard guard(owner_, {AwaitedRank{awaited_->from}}, policy_, watch, now_ns());
    if (!wake_.load(std::memory_order_relaxed)) watch.sleep_begins();
    while (!wake_.load(std::memory_order_relaxed)) {
      arrived_.wait_until(lock, time_point_of(guard.next_check_ns()),
                          [&] { return wake_.load(std::memory_order_relaxed); });
      if (wake_.load(std::memory_order_relaxed)) return;
      lock.unlock();
      try {
        guard.check(waiting_for, now_ns());
      } catch (const TransportError&) {
        lock.lock();
        if (wake_.load(std::memory_order_relaxed)) return;  // the message came while the wait was given up
        throw;
      }
      lock.lock();
    }
  }

  static bool belongs(const Tag& tag, const StepKey& step) {
    return step.kind == WorkKind::all ? tag.pipeline == step.pipeline : step_of(tag) == step;
  }

  /// The cancellation of the step or pipeline that `tag` belongs to, with its reason; null where there is none.
  /// REQUIRES: mutex_ is held.
  const std::pair<const StepKey, std::string>* cancellation(const Tag& tag) const {
    if (cancelled_.empty()) return nullptr;
    auto found = cancelled_.find({tag.pipeline, 0, WorkKind::all});
    if (const auto step = step_of(tag); found == cancelled_.end() && step) found = cancelled_.find(*step);
    return found == cancelled_.end() ? nullptr : &*found;
  }

  const WorldRank owner_;
  const WaitPolicy policy_;
  AdaptiveSpin adaptive_spin_;  // used by the owner's thread alone
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  Messages messages_;                         // guarded by mutex_
  std::optional<Address> awaited_;            // guarded by mutex_
  std::optional<std::string> reason_;         // guarded by mutex_
  std::map<StepKey, std::string> cancelled_;  // guarded by mutex_: the reason by step
  std::atomic<bool> is_aborted_{false};
  alignas(64) std::atomic<bool> wake_{false};  // the awaited message has arrived, or the wait is to end
};

/// How a thread beside the rank's own watches the rank that it waits for: as the rank's thread does, but peers do not
/// see the wait, and what the awaited rank's own thread waits for does not matter, because another thread sends the
/// message.
class WatchBeside final : public PeerWatch {
 public:
  explicit WatchBeside(PeerWatch& of_rank) : of_rank_(of_rank) {}
  void wait_begins(WorldRank) override {}
  void wait_ends() override {}
  void ask(WorldRank peer) override { of_rank_.ask(peer); }
  std::optional<PeerStatus> status(WorldRank rank) const override {
    std::optional<PeerStatus> status = of_rank_.status(rank);
    if (status) status->waits_for.reset();
    return status;
  }
  bool status_is_delayed() const override { return of_rank_.status_is_delayed(); }
  Contact contact(WorldRank rank) const override { return of_rank_.contact(rank); }

 private:
  PeerWatch& of_rank_;
};

/// Messages of Traffic::background have mailboxes of their own, one for each pipeline, because a mailbox has one
/// waiting thread. The functions are those of Mailbox.
template <class Content>
class Mailboxes {
 public:
  Mailboxes(WorldRank owner, const WaitPolicy& policy)
      : owner_(owner), background_policy_(without_spin(policy)), own_(owner, policy) {}

  void put(WorldRank from, const Tag& tag, Content content) { of(tag).put(from, tag, std::move(content)); }
  /// `watch` is that of the rank's thread; for messages of Traffic::background its functions are called on this one.
  Content take(WorldRank from, const Tag& tag, std::string_view waiting_for, PeerWatch& watch) {
    if (!is_background(tag)) return own_.take(from, tag, waiting_for, watch);
    WatchBeside beside(watch);
    return of(tag).take(from, tag, waiting_for, beside);
  }
  bool contains(WorldRank from, const Tag& tag) { return of(tag).contains(from, tag); }
  bool abort(const std::string& reason) {
    const bool is_first = own_.abort(reason);
    const std::lock_guard lock(mutex_);
    for (auto& [pipeline, mailbox] : background_) mailbox.abort(own_.aborted().value_or(reason));
    return is_first;
  }
  bool cancel(const StepKey& step, const std::string& reason) {
    if (step.kind == WorkKind::background) return background_of(step.pipeline).cancel(step, reason);
    if (step.kind == WorkKind::all) background_of(step.pipeline).cancel(step, reason);
    return own_.cancel(step, reason);
  }
  std::optional<std::string> aborted() const { return own_.aborted(); }

 private:
  static bool is_background(const Tag& tag) { return tag.traffic == Traffic::background; }
  static WaitPolicy without_spin(WaitPolicy policy) {
    policy.spin = {};
    return policy;
  }
  Mailbox<Content>& of(const Tag& tag) { return is_background(tag) ? background_of(tag.pipeline) : own_; }
  Mailbox<Content>& background_of(std::uint32_t pipeline) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = background_.try_emplace(pipeline, owner_, background_policy_);
    if (const auto reason = own_.aborted(); is_new && reason) found->second.abort(*reason);
    return found->second;
  }

  const WorldRank owner_;
  const WaitPolicy background_policy_;
  Mailbox<Content> own_;
  std::mutex mutex_;
  std::map<std::uint32_t, Mailbox<Content>> background_;  // guarded by mutex_: by pipeline; never removed
};

}  // namespace penstock::transport
