#include "penstock/transport/gloo_network.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include <torch/types.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/transport/exit_watch.h"

namespace penstock {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

/// The tag of all transfers: every connection is a FIFO.
constexpr int fifo_tag = 0;
/// The longest buffer that travels in its frame. A longer one costs a round trip more, a copy less.
constexpr std::size_t inline_bytes = 8 << 10;
/// The frames that a stopped process can take: a question in each second of a deadline of a minute, and the reason of the
/// end.
constexpr std::size_t posted_frames = 128;
/// Kinds of frames of this network's own; those of its user are above 0.
constexpr std::int32_t kind_barrier = -1, kind_bye = -2;
/// How long Gloo waits for a transfer: the deadlines are those of ProgressThread. Its own default is the time that its
/// connections had to come about.
constexpr std::chrono::hours for_ever{24 * 365};
/// How long close() waits for the last frames of all peers, and a broken connection of payloads for that of frames,
/// which may bring the reason.
constexpr std::chrono::seconds time_to_part{2};

struct FrameHeader {
  std::uint64_t bytes = 0;
  std::int32_t kind = 0;
  std::uint32_t is_separate = 0;  // the buffer is not in the frame
};
static_assert(sizeof(FrameHeader) <= WireBuffer::unit);

/// Gloo's text without its source line and its advice: "Connection closed by peer [10.0.0.1]:1234".
std::string first_sentence(const std::string& text) {
  const std::size_t begin = text.starts_with("[") && text.find("] ") != text.npos ? text.find("] ") + 2 : 0;
  const std::size_t end = std::min(text.find(". ", begin), text.find('\n', begin));
  return text.substr(begin, end == text.npos ? text.npos : end - begin);
}

/// A transfer that Gloo has begun. The buffer must outlive the work, which is destroyed first.
struct Operation {
  WireBuffer buffer;
  Work work;
  WorldRank peer;
  std::int32_t kind = 0;
};

std::vector<at::Tensor> tensor_of(const WireBuffer& buffer) {
  return {torch::from_blob(buffer.data(), {static_cast<std::int64_t>(buffer.size())}, torch::kByte)};
}

class GlooNetwork final : public BufferNetwork {
 public:
  GlooNetwork(c10::intrusive_ptr<c10d::Backend> frames, c10::intrusive_ptr<c10d::Backend> payloads,
              GlooMembership membership)
      : frames_(std::move(frames)),
        payloads_(std::move(payloads)),
        rank_(membership.rank),
        places_(std::move(membership.places)),
        peers_(places_.size()) {}

  ~GlooNetwork() override {
    if (exit_number_ > 0) ExitWatch::instance().remove(exit_number_, closed_);
    abandon();
  }

  std::string name() const override { return "gloo"; }
  WorldRank rank() const override { return rank_; }
  const std::vector<ProcessPlace>& places() const override { return places_; }
  std::mutex& calls() override { return calls_; }

  bool notify(std::function<void()> has_news) override {
    has_news_ = std::move(has_news);
    sender_ = std::thread([this] { finish_sends(); });
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (i == rank_.index()) continue;
      const WorldRank from(static_cast<std::int32_t>(i));
      peers_[i].frame_thread = std::thread([this, from] { receive_frames(from); });
      peers_[i].payload_thread = std::thread([this, from] { receive_payloads(from); });
    }
    return true;
  }

  void watch_exit(std::function<void()> process_ends) override {
    exit_number_ = ExitWatch::instance().add(std::move(process_ends));
  }

  void begin_send(WorldRank to, int kind, WireBuffer buffer) override {
    const bool is_separate = buffer.size() > inline_bytes;
    send_frame(to, {buffer.size(), kind, is_separate}, is_separate ? nullptr : &buffer);
    if (is_separate) post_send(*payloads_, {std::move(buffer), {}, to, kind});
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
    for (const Peer& peer : peers_)
      for (const Operation& payload : peer.payloads) all.push_back({payload.peer, payload.buffer.size()});
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
    changed_.wait_for(lock, time_to_part, [&] {
      for (std::size_t i = 0; i < peers_.size(); ++i)
        if (i != rank_.index() && !peers_[i].has_parted) return false;
      return sending_.empty();
    });
    lock.unlock();
    abandon();
    closed_ = true;
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
    changed_.notify_all();
    if (sender_.joinable()) sender_.join();
    for (Peer& peer : peers_)
      for (std::thread* thread : {&peer.frame_thread, &peer.payload_thread})
        if (thread->joinable()) thread->join();
  }

 private:
  struct Peer {
    std::deque<Operation> frames;       // guarded by mutex_: posted receives, oldest first
    std::deque<Operation> payloads;     // guarded by mutex_: likewise
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
    post_send(*frames_, {std::move(frame), {}, to, header.kind});
  }

  void post_send(c10d::Backend& connection, Operation send) {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    auto bytes = tensor_of(send.buffer);
    try {
      send.work = connection.send(bytes, send.peer.value(), fifo_tag);
    } catch (const std::exception&) {
      return;  // the connection has broken, which the thread that receives from it reports
    }
    sending_.push_back(std::move(send));
    changed_.notify_all();
  }

  /// Posts a receive behind those in `posted`. False once abandoned.
  bool post_receive(c10d::Backend& connection, std::deque<Operation>& posted, Operation receive) {
    const std::lock_guard lock(mutex_);
    if (is_over_) return false;
    auto bytes = tensor_of(receive.buffer);
    receive.work = connection.recv(bytes, receive.peer.value(), fifo_tag);
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

  /// Waits until there is an operation and it is complete. False once abandoned. Throws what Gloo throws where the
  /// connection breaks.
  bool wait_for_front(const std::deque<Operation>& operations) {
    Work oldest;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_over_ || !operations.empty(); });
      if (is_over_) return false;
      oldest = operations.front().work;
    }
    return oldest->wait(for_ever);
  }

  void finish_sends() {
    for (;;) {
      try {
        if (!wait_for_front(sending_)) return;
      } catch (const std::exception&) {
        // The thread that receives over this connection reports it.
      }
      take_front(sending_);
      changed_.notify_all();
    }
  }

  void receive_frames(WorldRank from) {
    std::deque<Operation>& frames = peer(from).frames;
    std::optional<std::string> broken;
    // After a break the frames that have come before it are still handled: one may bring the reason.
    const auto post = [&](WireBuffer frame) {
      try {
        return broken || post_receive(*frames_, frames, {std::move(frame), {}, from, 0});
      } catch (const std::exception& error) {
        broken = error.what();
        return true;
      }
    };
    try {
      bool goes_on = true;
      for (std::size_t i = 0; i < posted_frames && goes_on; ++i)
        goes_on = post(WireBuffer(WireBuffer::unit + inline_bytes));
      while (goes_on && !(broken && is_empty(frames)) && wait_for_front(frames)) {
        WireBuffer frame = take_front(frames).buffer;
        goes_on = handle(from, frame) && post(std::move(frame));
        if (!goes_on) broken.reset();
      }
    } catch (const std::exception& error) {
      broken = error.what();
    }
    part(from, broken);
  }

  bool is_empty(const std::deque<Operation>& operations) const {
    const std::lock_guard lock(mutex_);
    return operations.empty();
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
      if (!post_receive(*payloads_, peer(from).payloads, {WireBuffer(header.bytes, pool()), {}, from, header.kind}))
        return false;
      changed_.notify_all();
      return true;
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

  void receive_payloads(WorldRank from) {
    Peer& peer = this->peer(from);
    try {
      while (wait_for_front(peer.payloads)) {
        Operation done = take_front(peer.payloads);
        {
          const std::lock_guard lock(mutex_);
          arrived_.push_back({from, done.kind, std::move(done.buffer)});
        }
        has_news_();
      }
    } catch (const std::exception& error) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, time_to_part, [&] { return peer.has_parted || is_over_; });
      }
      part(from, error.what());
    }
  }

  /// No more comes from `from`: it has said so, or its connection has broken for the reason `why`.
  void part(WorldRank from, std::optional<std::string> why) {
    {
      const std::lock_guard lock(mutex_);
      Peer& peer = this->peer(from);
      if (why && !is_over_ && !peer.has_parted) peer.broken = first_sentence(*why);
      peer.has_parted = true;
    }
    changed_.notify_all();
    has_news_();
  }

  const c10::intrusive_ptr<c10d::Backend> frames_, payloads_;  // calls of them: mutex_ is held
  const WorldRank rank_;
  const std::vector<ProcessPlace> places_;
  std::mutex calls_;
  std::function<void()> has_news_;
  int barrier_ = 0;
  bool closed_ = false;
  int exit_number_ = 0;  // for ExitWatch; 0: none yet

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;        // by rank
  std::deque<Operation> sending_;  // guarded by mutex_; in order of their begin
  std::vector<Arrival> arrived_;   // guarded by mutex_
  bool is_over_ = false;           // guarded by mutex_: abandoned
  std::thread sender_;
};

/// Exchanges a buffer with every other process. Afterwards they need nothing from this one to be connected with it, even
/// if it is stopped at once.
void greet(c10d::Backend& connection, WorldRank own, int size) {
  std::deque<Operation> greetings;
  for (const bool sends : {false, true})
    for (std::int32_t rank = 0; rank < size; ++rank) {
      if (WorldRank(rank) == own) continue;
      Operation& greeting = greetings.emplace_back(Operation{WireBuffer(WireBuffer::unit), {}, WorldRank(rank)});
      auto bytes = tensor_of(greeting.buffer);
      greeting.work = sends ? connection.send(bytes, rank, fifo_tag) : connection.recv(bytes, rank, fifo_tag);
    }
  for (const Operation& greeting : greetings) greeting.work->wait(for_ever);
}

}  // namespace

std::unique_ptr<BufferNetwork> open_gloo_network(const c10::intrusive_ptr<c10d::Store>& store,
                                                 GlooMembership membership, std::chrono::milliseconds limit) {
  using c10d::ProcessGroupGloo;
  const auto connect = [&](const char* prefix) {
    // The default looks up the name of this host, which takes seconds where no server of names answers.
    const auto options = membership.address.empty() ? ProcessGroupGloo::Options::create_default(limit)
                                                    : ProcessGroupGloo::Options::create(limit);
    options->threads = 1;  // it would run collective operations
    if (!membership.address.empty())
      options->devices.push_back(ProcessGroupGloo::createDeviceForHostname(membership.address));
    const int size = static_cast<int>(membership.places.size());
    auto group = c10::make_intrusive<ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(prefix, store),
                                                       membership.rank.value(), size, options);
    greet(*group, membership.rank, size);
    return group;
  };
  try {
    auto frames = connect("frames");
    auto payloads = connect("payloads");
    return std::make_unique<GlooNetwork>(std::move(frames), std::move(payloads), std::move(membership));
  } catch (const std::exception& error) {
    throw TransportError(say("rank ", membership.rank.value(),
                             " could not connect with all other ranks: ", first_sentence(error.what())));
  }
}

}  // namespace penstock
