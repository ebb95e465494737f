#include "tests/support/fault_injection.h"

#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/transport/processes/wire.h"
#include "penstock/transport/progress.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

class FaultInjectingTransport final : public Transport {
 public:
  FaultInjectingTransport(std::unique_ptr<Transport> inner, FaultPlan plan)
      : inner_(std::move(inner)), plan_(std::move(plan)), releaser_([this] { release_in_time(); }) {}

  ~FaultInjectingTransport() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_one();
    releaser_.join();
  }

  WorldRank rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string name() const override { return inner_->name(); }
  bool shares_host(WorldRank other) const override {
    return other == rank() || (!plan_.is_alone_on_host && inner_->shares_host(other));
  }

  void send(WorldRank to, const Tag& tag, Message message) override {
    const std::lock_guard lock(mutex_);
    require_can_send(to);
    const int number = ++sends_;
    if (plan_.sent) plan_.sent(tag);
    message = prepare_for_send(std::move(message));  // throws now, not when it is due
    if (plan_.drop.contains(number)) return;
    if (const auto& delay = plan_.delay_odd; delay && number % 2 == 1)
      held_.push_back({number + delay->later_sends, Clock::now() + delay->at_most, to, tag, std::move(message)});
    else
      inner_->send(to, tag, std::move(message));
    held_.remove_if([&](Held& held) { return held.after_send <= number && (leave(held), true); });
    changed_.notify_one();
  }

  Message receive(WorldRank from, const Tag& tag, const std::string& waiting_for) override {
    return inner_->receive(from, tag, waiting_for);
  }
  bool has_arrived(WorldRank from, const Tag& tag) override { return inner_->has_arrived(from, tag); }
  void connect(const PipelineChannels& wanted) override { inner_->connect(wanted); }
  MessageCosts message_costs() const override { return inner_->message_costs(); }
  void report_progress(const Position& position) override { inner_->report_progress(position); }
  transport::PeerStatus status() const override { return inner_->status(); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }
  void cancel(const StepKey& step, const std::string& reason) noexcept override { inner_->cancel(step, reason); }
  std::optional<std::string> aborted() const override { return inner_->aborted(); }

 private:
  struct Held {
    int after_send;
    Clock::time_point due;
    WorldRank to;
    Tag tag;
    Message message;
  };

  void leave(Held& held) {
    try {
      inner_->send(held.to, held.tag, std::move(held.message));
    } catch (const TransportError&) {
      // The world has been aborted meanwhile: every rank's next call throws.
    }
  }

  void release_in_time() {
    std::unique_lock lock(mutex_);
    while (!closing_) {
      const auto now = Clock::now();
      auto next = now + std::chrono::hours(1);
      held_.remove_if([&](Held& held) { return held.due <= now && (leave(held), true); });
      for (const Held& held : held_) next = std::min(next, held.due);
      changed_.wait_until(lock, next);
    }
    for (Held& held : held_) leave(held);
  }

  std::unique_ptr<Transport> inner_;
  const FaultPlan plan_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Held> held_;  // guarded by mutex_
  int sends_ = 0;         // guarded by mutex_
  bool closing_ = false;  // guarded by mutex_
  std::thread releaser_;  // last: it uses all members above
};

}  // namespace

std::unique_ptr<Transport> with_faults(std::unique_ptr<Transport> inner, FaultPlan plan) {
  return std::make_unique<FaultInjectingTransport>(std::move(inner), std::move(plan));
}

}  // namespace penstock
