// The mailboxes of a rank: one for its own thread, one for each thread that writes checkpoints. Torch-free.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "penstock/transport/mailbox.h"

namespace penstock {

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
  bool abort(const std::string& reason) {
    const bool is_first = own_.abort(reason);
    const std::lock_guard lock(mutex_);
    for (auto& [pipeline, mailbox] : background_) mailbox.abort(own_.aborted().value_or(reason));
    return is_first;
  }
  bool cancel(const StepKey& step, const std::string& reason) {
    if (step.is_background()) return background_of(step.pipeline).cancel(step, reason);
    if (step.step == StepKey::all) background_of(step.pipeline).cancel(step, reason);
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

}  // namespace penstock
