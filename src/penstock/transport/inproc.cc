// Ranks as threads of one process: a message is moved into the receiver's mailbox, its tensors are not copied.
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/transport/device_hand_over.h"
#include "penstock/transport/mailbox.h"
#include "penstock/transport/progress.h"
#include "penstock/transport/transport.h"

namespace penstock {
using namespace transport;
namespace {

struct ThreadWorld {
  ThreadWorld(int size, const TransportOptions& options) : positions(static_cast<std::size_t>(size)) {
    for (std::int32_t rank = 0; rank < size; ++rank)
      mailboxes.emplace_back(
          WorldRank(rank),
          WaitPolicy{options.deadline, options.spin ? WaitPolicy::spin_on_own_core : std::chrono::nanoseconds(0),
                     options.stall_limit});
  }

  std::deque<Mailboxes<Message>> mailboxes;  // by rank
  std::vector<Progress> positions;           // by rank
  std::mutex aborting;                       // so that every mailbox gets the same first reason
};

class ThreadEndpoint final : public Transport, private PeerWatch {
 public:
  ThreadEndpoint(std::shared_ptr<ThreadWorld> world, WorldRank rank) : world_(std::move(world)), rank_(rank) {}

  ~ThreadEndpoint() override { world_->positions[rank_.index()].report(end_position); }

  WorldRank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_->mailboxes.size()); }
  std::string name() const override { return "threads"; }

  void send(WorldRank to, const Tag& tag, Message message) override {
    require_can_send(to);
    const std::int64_t begin = now_ns();
    Message sent = with_events(prepare_for_send(std::move(message)));
    sent.sent_ns = begin;
    sent.arrived_ns = now_ns();
    world_->mailboxes[to.index()].put(rank_, tag, std::move(sent));
    own_progress().move();
  }

  Message receive(WorldRank from, const Tag& tag, const std::string& waiting_for) override {
    require_rank(from);
    Message message = world_->mailboxes[rank_.index()].take(from, tag, waiting_for, *this);
    own_progress().move();
    return device_receiver_.receive(std::move(message));
  }

  bool has_arrived(WorldRank from, const Tag& tag) override {
    return world_->mailboxes[rank_.index()].contains(from, tag);
  }

  void report_progress(const Position& position) override { own_progress().report(position); }
  PeerStatus status() const override { return world_->positions[rank_.index()].read(); }

  void abort(const std::string& reason) noexcept override {
    const std::lock_guard lock(world_->aborting);
    for (auto& mailbox : world_->mailboxes) mailbox.abort(reason);
  }

  void cancel(const StepKey& step, const std::string& reason) noexcept override {
    const std::lock_guard lock(world_->aborting);
    for (auto& mailbox : world_->mailboxes) mailbox.cancel(step, reason);
  }

  std::optional<std::string> aborted() const override { return world_->mailboxes[rank_.index()].aborted(); }

 private:
  void wait_begins(WorldRank peer) override { own_progress().wait_begins(peer); }
  void wait_ends() override { own_progress().wait_ends(); }
  void ask(WorldRank) override {}
  std::optional<PeerStatus> status(WorldRank rank) const override { return world_->positions[rank.index()].read(); }
  bool status_is_delayed() const override { return false; }

  Progress& own_progress() { return world_->positions[rank_.index()]; }

  std::shared_ptr<ThreadWorld> world_;
  WorldRank rank_;
  DeviceReceiver device_receiver_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> open_threads(int size, const TransportOptions& options) {
  require<ConfigError>(size >= 1, "a world of ", size, " ranks: there must be at least 1");
  const auto world = std::make_shared<ThreadWorld>(size, options);
  std::vector<std::unique_ptr<Transport>> endpoints;
  for (std::int32_t rank = 0; rank < size; ++rank)
    endpoints.push_back(std::make_unique<ThreadEndpoint>(world, WorldRank(rank)));
  return endpoints;
}

}  // namespace penstock
