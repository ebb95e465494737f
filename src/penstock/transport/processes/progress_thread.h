// The network side of a rank that is a process: sends and receives its messages, answers other ranks' questions about
// its position, and reports an abort to them. Everything public may be called from any thread.
//
// Without this thread, a message that is sent before a long computation might arrive after it, and the process would
// answer no questions meanwhile. The rank's own thread uses the network as well, one thread at a time: it sends, and
// polls for the message that it waits for, without waking another thread first.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "penstock/base/clock.h"
#include "penstock/transport/liveness.h"
#include "penstock/transport/mailbox.h"
#include "penstock/transport/processes/buffer_network.h"
#include "penstock/transport/processes/peer_inquiry.h"
#include "penstock/transport/processes/peer_processes.h"
#include "penstock/transport/processes/wire.h"
#include "penstock/transport/progress.h"
#include "penstock/transport/transport.h"

namespace penstock::processes {

class ProgressThread final : public transport::PeerWatch {
 public:
  /// `on_abort` is called once, on this thread, when the world has been aborted, by whatever rank.
  ProgressThread(
      std::unique_ptr<BufferNetwork> network, transport::WaitPolicy policy, std::function<void()> on_abort = [] {});
  /// Waits until every rank destroys its own; after an abort takes at most half a second to report it to the others.
  /// Completes or gives up all transfers.
  ~ProgressThread() override;
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  WorldRank rank() const { return rank_; }
  int size() const { return network_->size(); }
  /// That of the network.
  std::string name() const { return network_->name(); }
  bool shares_host(WorldRank other) const { return host_of(other) == host_of(rank_); }
  transport::Mailboxes<Message>& mailbox() { return mailbox_; }
  /// The declared boundary shapes, which messages do not carry.
  KnownShapes& shapes() { return shapes_; }
  const transport::Mailboxes<Message>& mailbox() const { return mailbox_; }
  transport::Progress& progress() { return progress_; }
  const transport::Progress& progress() const { return progress_; }
  MessageCosts message_costs() const;

  void send(WorldRank to, const Tag& tag, Message message);
  void abort(const std::string& reason) noexcept;
  bool is_lost(WorldRank rank) const;
  void cancel(const StepKey& step, const std::string& reason) noexcept;

  /// On the rank's thread: waits until `is_done()`, which cannot wake the thread, and so is called again and again.
  /// Meanwhile `awaited` are watched. Other ranks do not see that this one waits. Throws TransportError where the wait
  /// has failed (liveness.h), and WorldAborted when the world has been aborted, also where `is_done()` since.
  void wait_until(const std::function<bool()>& is_done, const std::vector<transport::AwaitedRank>& awaited,
                  const std::string& waiting_for);

  void wait_begins(WorldRank peer) override { progress_.wait_begins(peer); }
  void wait_ends() override;
  void poll() override;
  /// Makes the thread poll more often, if it must poll: the rank's core is free until the wait ends, and the message is
  /// urgent.
  void sleep_begins() override;
  void ask(WorldRank peer) override;
  std::optional<transport::PeerStatus> status(WorldRank rank) const override { return inquiry_.status(rank); }
  bool status_is_delayed() const override { return true; }
  transport::Contact contact(WorldRank rank) const override { return inquiry_.contact(rank); }

 private:
  struct Cancellation {
    StepKey step;
    std::string reason;
  };
  /// A wait of a rank that has no other work.
  struct LastWait {
    std::int64_t begin_ns = now_ns();
    std::int64_t asked_ns = begin_ns;
  };

  std::uint64_t host_of(WorldRank rank) const { return network_->places()[rank.index()].host; }
  void run();
  void serve();
  void look_after_peers();
  void lost(WorldRank peer, const std::string& how);
  /// A rank that holds up the end: its transfer is not complete, and this rank has nothing else to do.
  std::optional<WorldRank> last_peer() const;
  /// Throws TransportError where `peer` has not answered for the deadline. To be called again and again: asks it at
  /// times.
  void expect(WorldRank peer, LastWait& wait, bool asks = true);
  void close();
  void wait_for_all(bool asks);
  void finish_sending(std::chrono::nanoseconds at_most);
  void spread_abort();
  void process_ends();
  void has_news();
  void abort_with(const std::exception& error);

  /// A polling round on the rank's thread; false where another thread is in one, or the world was aborted.
  bool poll_by_rank();

  // REQUIRES for the following: calls_ is held.
  bool polling_round();  // sends, receives and completes transfers; false when there was nothing to do
  bool send_queued();
  void begin_send(const SendRequest& request);
  void received(BufferNetwork::Arrival arrival);

  /// What the last polling round found; decides how long the thread pauses.
  enum class Pace { busy, under_way, idle };
  Pace pace_of_round();
  void rest(Pace pace);

  std::unique_ptr<BufferNetwork> network_;
  const WorldRank rank_ = network_->rank();
  std::mutex& calls_ = network_->calls();  // held around every use of the network
  const bool must_poll_ = network_->must_be_polled();
  const transport::WaitPolicy policy_;
  const std::function<void()> on_abort_;
  transport::Progress progress_;
  PeerInquiry inquiry_;  // what sends: calls_ is held
  KnownShapes shapes_;
  transport::Mailboxes<Message> mailbox_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<SendRequest> queue_;           // guarded by mutex_: for a polling round to encode
  std::vector<WorldRank> asks_;             // guarded by mutex_: by the rank's thread and one beside it
  std::deque<Cancellation> cancellations_;  // guarded by mutex_: begun here, to be sent to the others
  bool wait_began_ = false;                 // guarded by mutex_: sleep_begins() since the last pause
  bool has_news_ = false;                   // guarded by mutex_: of the network, not received yet
  std::atomic<bool> rank_sleeps_{false};    // waiting for a message, or done
  bool closing_ = false;                    // guarded by mutex_
  bool has_ended_ = false;                  // guarded by mutex_: thread_ uses the network no more

  // Guarded by calls_.
  bool is_told_of_abort_ = false;  // another rank has begun the abort
  std::uint64_t messages_sent_ = 0;
  std::map<WorldRank, SentFormats> sent_formats_;          // by receiver
  std::map<WorldRank, ReceivedFormats> received_formats_;  // by sender

  const std::int64_t spin_ns_;  // how long to poll before sleeping

  // Used by thread_ alone.
  std::int64_t busy_ns_ = 0;    // when a polling round last found something to do
  PeerProcesses peers_;         // of this host
  std::int64_t looked_ns_ = 0;  // when look_after_peers() last did

  std::thread thread_;  // last: it uses all members above
};

}  // namespace penstock::processes
