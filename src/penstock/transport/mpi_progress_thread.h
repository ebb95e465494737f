// Talks MPI for a process: carries letters between its rank and all others, answers where its rank stands, and spreads
// the news of an abort. Everything public may be called from any thread.
//
// Why a thread: without one, a message that is sent before a long computation arrives after it, and nobody answers
// meanwhile. The rank's thread makes calls as well, one thread at a time: it sends, and looks for what it waits for,
// without waking another thread first. Each world of a process has a progress_thread, with a communicator of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>

#include "penstock/transport/mailbox.h"
#include "penstock/transport/mpi_runtime.h"
#include "penstock/transport/progress.h"
#include "penstock/transport/transport.h"
#include "penstock/transport/wire.h"

namespace penstock {

class MpiProgressThread final : public PeerWatch {
 public:
  /// Starts MPI, unless that has been done; returns when all processes have come (MpiRuntime::open).
  MpiProgressThread(WaitPolicy patience, std::chrono::milliseconds start_deadline);
  /// Not aborted: waits until every rank is done. Aborted: gives the others half a second to hear of it. No request is
  /// left behind but those that MPI cannot cancel.
  ~MpiProgressThread() override;
  MpiProgressThread(const MpiProgressThread&) = delete;
  MpiProgressThread& operator=(const MpiProgressThread&) = delete;

  WorldRank rank() const { return rank_; }
  int size() const { return size_; }
  bool shares_host(WorldRank other) const { return hosts_[other.index()] == hosts_[rank_.index()]; }
  Mailbox<Message>& mailbox() { return *mailbox_; }
  /// What messages need not carry.
  KnownShapes& shapes() { return shapes_; }
  const Mailbox<Message>& mailbox() const { return *mailbox_; }
  Progress& progress() { return progress_; }

  void send(WorldRank to, EncodedMessage letter);
  void abort(const std::string& reason) noexcept;
  void cancel(const StepKey& step, const std::string& reason) noexcept;

  void wait_begins(WorldRank peer) override { progress_.wait_begins(peer); }
  void wait_ends() override;
  void look() override;
  /// From here on the own core is free, and a message is urgent.
  void sleep_begins() override;
  /// Asks `peer` where it stands, and then the rank it waits for, and so on.
  void ask(WorldRank peer) override;
  std::optional<PeerStatus> status(WorldRank rank) const override;
  bool hears_late() const override { return true; }
  Contact contact(WorldRank rank) const override;

 private:
  struct SendRequest {
    WorldRank to;
    EncodedMessage letter;
  };
  struct Cancellation {
    StepKey step;
    std::string reason;
  };
  /// A transfer that MPI has begun; the buffer must live until it is done.
  struct Transfer {
    WireBuffer buffer;
    WorldRank peer;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void run();
  void set_up(std::chrono::milliseconds start_deadline);
  void serve();
  void close();
  void wait_for_all(bool asks);
  void finish_sending(std::chrono::nanoseconds at_most);
  void spread_abort();
  void abandon_transfers();
  void process_ends();
  void abort_with(const std::exception& error);

  /// A turn by the rank's thread; false where it may not, because another is in the middle of one or MPI is left alone.
  bool poll_by_rank();

  // With calls_ held.
  bool turn();  // one round of everything there is to do; false when there was nothing
  bool send_queued();
  bool receive_arrived();
  bool finish_transfers();
  void begin_send(WorldRank to, int kind, WireBuffer buffer);
  void received(WorldRank from, int kind, WireBuffer buffer);
  void heard_of(WorldRank peer, const Tag* tag);
  void inquire(WorldRank peer);
  void question(WorldRank peer);
  void answer(WorldRank to, const WireBuffer& asked);
  void answered(WorldRank from, const WireBuffer& news);

  /// How the progress_thread's thread goes on after a turn.
  enum class Pace { busy, under_way, idle };
  Pace pace_of_round();
  void rest(Pace pace);

  WaitPolicy patience_;
  Progress progress_;
  KnownShapes shapes_;
  const std::shared_ptr<WireBufferPool> buffers_ = std::make_shared<WireBufferPool>();
  WorldRank rank_;
  int size_ = 0;
  std::vector<std::uint64_t> hosts_;  // by rank: host_id()
  std::optional<Mailbox<Message>> mailbox_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<SendRequest> queue_;                    // guarded by mutex_
  std::optional<WorldRank> ask_;                     // guarded by mutex_
  std::deque<Cancellation> cancellations_;           // guarded by mutex_: begun here, to be told to the others
  std::vector<std::optional<PeerStatus>> statuses_;  // guarded by mutex_
  std::vector<Contact> contacts_;                    // guarded by mutex_
  bool looking_out_ = false;                         // guarded by mutex_
  std::atomic<bool> rank_sleeps_{false};             // waiting for a message, or done
  bool closing_ = false;                             // guarded by mutex_
  bool report_abort_ = false;                        // guarded by mutex_: begun here, to be told to the others
  bool has_ended_ = false;  // guarded by mutex_: the progress_thread's thread makes no more calls

  MpiRuntime& mpi_ = MpiRuntime::instance();
  std::mutex& calls_ = mpi_.calls();  // held by who makes calls of MPI; guards what follows
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Datatype block_ = MPI_DATATYPE_NULL;  // WireBuffer::unit bytes, so that counts stay small
  std::vector<Transfer> sending_;
  std::vector<Transfer> arriving_;
  std::uint64_t inquiry_ = 0;  // questions of one chain carry one number
  std::vector<WorldRank> inquired_;

  // The progress_thread's thread's own.
  std::int64_t look_ns_ = 0;  // how long to look before sleeping
  std::int64_t busy_ns_ = 0;  // when there last was something to do
  bool closed_ = false;       // every rank has closed
  int number_ = 0;            // of this world, for MpiRuntime

  std::thread thread_;  // last: it uses everything above
};

}  // namespace penstock
