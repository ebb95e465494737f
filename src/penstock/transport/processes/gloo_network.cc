#include "penstock/transport/processes/gloo_network.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include <torch/types.h>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/process.h"
#include "penstock/transport/c10d.h"
#include "penstock/transport/processes/early_posts.h"
#include "penstock/transport/processes/exit_watch.h"

namespace penstock::processes {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

/// The longest buffer that travels in its frame. A longer one costs a round trip more, a copy less.
constexpr std::size_t inline_bytes = 8 << 10;
static_assert(inline_bytes >= BufferNetwork::longest_in_order);  // frames arrive in order
/// The frames that a stopped process can take: a question in each second of a deadline of a minute, and the reason of
/// the end.
constexpr std::size_t posted_frames = 128;
/// Kinds of frames of this network's own; those of its user are above 0.
constexpr std::int32_t kind_barrier = -1, kind_bye = -2;
/// How long close() waits for the last frames of all peers, and a broken connection of payloads for that of frames,
/// which may bring the reason.
constexpr std::chrono::seconds time_to_part{2};
/// How long the buffer of a complete send may wait until it is given back.
constexpr std::chrono::milliseconds between_finishes{1};

struct FrameHeader {
  std::uint64_t bytes = 0;
  std::int32_t kind = 0;
  std::uint32_t is_separate = 0;  // the buffer is not in the frame
};
static_assert(sizeof(FrameHeader) <= WireBuffer::unit);

/// A transfer that Gloo has begun. The buffer must outlive the work, which is destroyed first.
struct Operation {
  WireBuffer buffer;
  Work work;
  WorldRank peer;
};

std::vector<at::Tensor> tensor_of(const WireBuffer& buffer) {
  return {torch::from_blob(buffer.data(), {static_cast<std::int64_t>(buffer.size())}, torch::kByte)};
}

class GlooNetwork final : public BufferNetwork {
 public:
  GlooNetwork(GlooConnections connections, GlooMembership membership)
      : frames_(std::move(connections.frames)),
        payloads_(std::move(connections.payloads)),
        rank_(membership.rank),
        places_(std::move(membership.places)),
        peers_(places_.size()) {}

  ~GlooNetwork() override {
    open_world_.reset();
    abandon();
  }

  std::string name() const override { return "gloo"; }
  WorldRank rank() const override { return rank_; }
  const std::vector<ProcessPlace>& places() const override { return places_; }
  std::mutex& calls() override { return calls_; }

  bool must_be_polled() const override { return false; }
  void notify(std::function<void()> has_news) override {
    has_news_ = std::move(has_news);
    sender_ = std::thread([this] { finish_sends(); });
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (i == rank_.index()) continue;
      const WorldRank from(static_cast<std::int32_t>(i));
      peers_[i].frame_thread = std::thread([this, from] { receive_frames(from); });
      peers_[i].payload_thread = std::thread([this, from] { receive_payloads(from); });
    }
  }

  void watch_exit(std::function<void()> process_ends) override { open_world_.emplace(std::move(process_ends)); }

  void begin_send(WorldRank to, int kind, WireBuffer buffer) override {
    const bool is_separate = buffer.size() > inline_bytes;
    send_frame(to, {buffer.size(), kind, is_separate}, is_separate ? nullptr : &buffer);
    if (!is_separate) return;
    const EarlyPosts::Step step = peer(to).sent.next(buffer.size());
    for (int i = 0; i < step.voided; ++i) post_send(*payloads_, {WireBuffer(0), {}, to});
    post_send(*payloads_, {std::move(buffer), {}, to});
  }

  bool advance(std::vector<Arrival>& arrived) override {
    const std::lock_guard lock(mutex_);
    const bool any = !arrived_.empty();
    for (Arrival& arrival : arrived_) arrived.push_back(std::move(arrival));
    arrived_.clear();
    return any;
  }

  std::vector<Transfer> transfers() const override {
    const std::lock_guard lock(mutex_);
    std::vector<Transfer> all;
    for (const Operation& sent : sending_) all.push_back({sent.peer, sent.buffer.size()});
    for (std::size_t i = 0; i < peers_.size(); ++i)
      for (const Announced& payload : peers_[i].announced)
        all.push_back({WorldRank(static_cast<std::int32_t>(i)), payload.bytes});
    return all;
  }

  std::optional<Break> take_break() override {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < peers_.size(); ++i)
      if (Peer& peer = peers_[i]; peer.broken && !std::exchange(peer.is_reported, true))
        return Break{WorldRank(static_cast<std::int32_t>(i)), *peer.broken};
    return std::nullopt;
  }

  void begin_barrier() override {
    ++barrier_;
    send_to_all(kind_barrier);
  }

  bool is_barrier_done() override {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < peers_.size(); ++i)
      if (i != rank_.index() && peers_[i].barriers < barrier_) return false;
    return true;
  }

  // A process that closed its connections while frames for it are under way would break them for the others.
  void close() override {
    send_to_all(kind_bye);
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, time_to_part, [&] {
      for (std::size_t i = 0; i < peers_.size(); ++i)
        if (i != rank_.index() && !peers_[i].has_parted) return false;
      return sending_.empty();
    });
    lock.unlock();
    abandon();
    if (open_world_) open_world_->ends_clean();
  }

  void abandon() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
      for (const Operation& sent : sending_) sent.work->abort();
      for (const Peer& peer : peers_)
        for (const auto* operations : {&peer.frames, &peer.payloads})
          for (const Operation& operation : *operations) operation.work->abort();
    }
    begun_.notify_one();
    ended_.notify_all();
    for (Peer& peer : peers_) peer.changed.notify_one();
    if (sender_.joinable()) sender_.join();
    for (Peer& peer : peers_)
      for (std::thread* thread : {&peer.frame_thread, &peer.payload_thread})
        if (thread->joinable()) thread->join();
  }

 private:
  /// A payload whose frame has come.
  struct Announced {
    std::size_t bytes = 0;
    std::int32_t kind = 0;
    int voided = 0;  // receives posted before its own that get nothing
  };
  struct Peer {
    EarlyPosts sent;                    // guarded by calls_: of payloads
    EarlyPosts received;                // used by frame_thread alone
    std::deque<Operation> frames;       // guarded by mutex_: posted receives, oldest first
    std::deque<Operation> payloads;     // guarded by mutex_: likewise
    std::deque<Announced> announced;    // guarded by mutex_: not complete, oldest first
    std::condition_variable changed;    // for payload_thread: `announced` or `has_parted`
    int barriers = 0;                   // guarded by mutex_: that it has reached
    bool has_parted = false;            // guarded by mutex_: no more frames come
    std::optional<std::string> broken;  // guarded by mutex_: why its connection has ended without a bye
    bool is_reported = false;           // guarded by mutex_: `broken` by take_break()
    std::thread frame_thread, payload_thread;
  };
  Peer& peer(WorldRank rank) { return peers_[rank.index()]; }

  void send_to_all(std::int32_t kind) {
    for (std::int32_t to = 0; to < size(); ++to)
      if (WorldRank(to) != rank_) send_frame(WorldRank(to), {0, kind, 0}, nullptr);
  }

  void send_frame(WorldRank to, const FrameHeader& header, const WireBuffer* content) {
    WireBuffer frame(WireBuffer::unit + (content ? content->size() : 0), pool());
    std::memcpy(frame.data(), &header, sizeof(header));
    if (content) std::memcpy(frame.data() + WireBuffer::unit, content->data(), content->size());
    post_send(*frames_, {std::move(frame), {}, to});
  }

  void post_send(c10d::Backend& connection, Operation send) {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    auto bytes = tensor_of(send.buffer);
    try {
      send.work = connection.send(bytes, send.peer.value(), gloo_fifo_tag);
    } catch (const std::exception&) {
      return;  // the connection has broken, which the thread that receives from it reports
    }
    sending_.push_back(std::move(send));
    begun_.notify_one();
  }

  /// Posts a receive behind those in `posted`. False once abandoned.
  bool post_receive(c10d::Backend& connection, std::deque<Operation>& posted, Operation receive) {
    const std::lock_guard lock(mutex_);
    if (is_over_) return false;
    auto bytes = tensor_of(receive.buffer);
    receive.work = connection.recv(bytes, receive.peer.value(), gloo_fifo_tag);
    posted.push_back(std::move(receive));
    return true;
  }

  /// Removes the oldest operation, which is complete.
  Operation take_front(std::deque<Operation>& operations) {
    const std::lock_guard lock(mutex_);
    Operation done = std::move(operations.front());
    operations.pop_front();
    done.work.reset();
    return done;
  }

  /// Waits until the oldest operation, if there is one, is complete. False where there is none, and once abandoned.
  /// Throws what Gloo throws where the connection breaks.
  bool wait_for_front(const std::deque<Operation>& operations) {
    Work oldest;
    {
      const std::lock_guard lock(mutex_);
      if (is_over_ || operations.empty()) return false;
      oldest = operations.front().work;
    }
    return oldest->wait(transport::c10d_time_limit);
  }

  /// Gives back the buffers of complete sends, several at a time: whatever wakes this thread takes time from the ranks.
  void finish_sends() {
    name_this_thread("gloo sends");
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        begun_.wait(lock, [&] { return is_over_ || !sending_.empty(); });
        if (is_over_) return;
      }
      std::this_thread::sleep_for(between_finishes);
      for (bool any = true; any;) {
        try {
          any = wait_for_front(sending_);
        } catch (const std::exception&) {
          // The thread that receives over this connection reports it.
        }
        if (any) take_front(sending_);
      }
      ended_.notify_all();
    }
  }

  void receive_frames(WorldRank from) {
    name_this_thread(say("gloo frames ", from.value()));
    std::deque<Operation>& frames = peer(from).frames;
    std::optional<std::string> broken;
    // After a break the frames that have come before it are still handled: one may bring the reason.
    const auto post = [&](WireBuffer frame) {
      try {
        return broken || post_receive(*frames_, frames, {std::move(frame), {}, from});
      } catch (const std::exception& error) {
        broken = error.what();
        return true;
      }
    };
    try {
      bool goes_on = true;
      for (std::size_t i = 0; i < posted_frames && goes_on; ++i)
        goes_on = post(WireBuffer(WireBuffer::unit + inline_bytes));
      while (goes_on && wait_for_front(frames)) {
        WireBuffer frame = take_front(frames).buffer;
        goes_on = handle(from, frame) && post(std::move(frame));
        if (!goes_on) broken.reset();
      }
    } catch (const std::exception& error) {
      broken = error.what();
    }
    part(from, broken);
  }

  /// False after the last frame.
  bool handle(WorldRank from, const WireBuffer& frame) {
    FrameHeader header;
    std::memcpy(&header, frame.data(), sizeof(header));
    if (header.kind == kind_bye) return false;
    if (header.kind == kind_barrier) {
      const std::lock_guard lock(mutex_);
      ++peer(from).barriers;
    } else if (header.is_separate) {
      return announce(from, header);
    } else {
      require<TransportError>(header.bytes <= inline_bytes, "a frame of ", header.bytes, " bytes where at most ",
                              inline_bytes, " were expected: do all ranks run the same build?");
      WireBuffer content(header.bytes, pool());
      std::memcpy(content.data(), frame.data() + WireBuffer::unit, header.bytes);
      const std::lock_guard lock(mutex_);
      arrived_.push_back({from, header.kind, std::move(content)});
    }
    has_news_();
    return true;
  }

  /// A long buffer comes. False once abandoned.
  bool announce(WorldRank from, const FrameHeader& header) {
    Peer& peer = this->peer(from);
    const EarlyPosts::Step step = peer.received.next(header.bytes);
    const auto post = [&](std::size_t bytes) {
      return post_receive(*payloads_, peer.payloads, {WireBuffer(bytes, pool()), {}, from});
    };
    if (!step.is_early && !post(header.bytes)) return false;
    for (int i = 0; i < step.posted; ++i)
      if (!post(step.capacity)) return false;
    {
      const std::lock_guard lock(mutex_);
      peer.announced.push_back({header.bytes, header.kind, step.voided});
    }
    peer.changed.notify_one();
    return true;
  }

  /// None once no more payloads come.
  std::optional<Announced> wait_for_announced(Peer& peer) {
    std::unique_lock lock(mutex_);
    peer.changed.wait(lock, [&] { return is_over_ || peer.has_parted || !peer.announced.empty(); });
    return is_over_ || peer.announced.empty() ? std::nullopt : std::optional(peer.announced.front());
  }

  /// The next payload; none once abandoned. Throws what Gloo throws where the connection breaks.
  std::optional<WireBuffer> receive_payload(Peer& peer, const Announced& announced) {
    for (int i = 0; i < announced.voided; ++i) {
      if (!wait_for_front(peer.payloads)) return std::nullopt;
      take_front(peer.payloads);
    }
    if (!wait_for_front(peer.payloads)) return std::nullopt;
    WireBuffer whole = take_front(peer.payloads).buffer;
    if (2 * announced.bytes > whole.size()) return whole;
    // The tensors of a message live in its buffer, perhaps for long: not in one of more than twice their size.
    WireBuffer content(announced.bytes, pool());
    std::memcpy(content.data(), whole.data(), announced.bytes);
    return content;
  }

  void receive_payloads(WorldRank from) {
    name_this_thread(say("gloo data ", from.value()));
    Peer& peer = this->peer(from);
    try {
      while (const auto announced = wait_for_announced(peer)) {
        std::optional<WireBuffer> payload = receive_payload(peer, *announced);
        if (!payload) return;
        {
          const std::lock_guard lock(mutex_);
          arrived_.push_back({from, announced->kind, std::move(*payload)});
          peer.announced.pop_front();
        }
        has_news_();
      }
    } catch (const std::exception& error) {
      {
        std::unique_lock lock(mutex_);
        peer.changed.wait_for(lock, time_to_part, [&] { return peer.has_parted || is_over_; });
      }
      part(from, error.what());
    }
  }

  /// No more comes from `from`: it has said so, or its connection has broken for the reason `why`.
  void part(WorldRank from, std::optional<std::string> why) {
    {
      const std::lock_guard lock(mutex_);
      Peer& peer = this->peer(from);
      if (why && !is_over_ && !peer.has_parted) peer.broken = transport::c10d_reason(*why);
      peer.has_parted = true;
    }
    this->peer(from).changed.notify_one();
    ended_.notify_all();
    has_news_();
  }

  const c10::intrusive_ptr<c10d::Backend> frames_, payloads_;  // calls of them: mutex_ is held
  const WorldRank rank_;
  const std::vector<ProcessPlace> places_;
  std::mutex calls_;
  std::function<void()> has_news_;
  int barrier_ = 0;
  std::optional<OpenWorld> open_world_;

  mutable std::mutex mutex_;
  std::condition_variable begun_;  // a send
  std::condition_variable ended_;  // all sends, or a connection
  std::vector<Peer> peers_;        // by rank
  std::deque<Operation> sending_;  // guarded by mutex_; in order of their begin
  std::vector<Arrival> arrived_;   // guarded by mutex_
  bool is_over_ = false;           // guarded by mutex_: abandoned
  std::thread sender_;
};

}  // namespace

std::unique_ptr<BufferNetwork> make_gloo_network(GlooConnections connections, GlooMembership membership) {
  return std::make_unique<GlooNetwork>(std::move(connections), std::move(membership));
}

}  // namespace penstock::processes
