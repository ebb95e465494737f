#include "penstock/transport/mpi_progress_thread.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/transport/control_messages.h"
#include "penstock/transport/host_id.h"

namespace penstock {
namespace {

using namespace control_messages;

/// How long to poll without sleeping after the last event, while the rank's thread sleeps: about the time of sending a
/// megabyte and receiving an answer. Where ranks share cores, polling takes time from other ranks.
constexpr std::int64_t spin_on_own_core_ns = 200'000, spin_on_shared_core_ns = 20'000;
/// After that, pauses grow with the time since the last event, so that they lengthen a wait only by this fraction.
constexpr std::int64_t idle_per_pause = 16;
/// The shortest and the longest pause. A poll takes 30 us from a computation on the same core.
struct Pauses {
  std::int64_t shortest_ns = 0, longest_ns = 0;
};
/// While the rank's thread sleeps, its core is free and the awaited message is urgent.
constexpr Pauses pauses_urgent{20'000, 200'000};
/// A long transfer may need calls of MPI on both ends for each of its parts.
constexpr Pauses pauses_under_way{250'000, 500'000};
/// A rank that computes polls by itself when it next receives; a short message needs no poll before that.
constexpr Pauses pauses_idle{2'000'000, 2'000'000};
constexpr std::size_t long_message = 256 << 10;  // bytes
constexpr std::chrono::milliseconds flush_time{500};
/// How long a process that received an abort waits before it ends. The launcher ends all processes as soon as one has
/// ended; until then the process that failed must have printed its error.
constexpr std::chrono::milliseconds time_for_the_cause{300};

}  // namespace

MpiProgressThread::MpiProgressThread(WaitPolicy policy, std::chrono::milliseconds start_deadline) : policy_(policy) {
  comm_ = mpi_.open(start_deadline);
  set_up(start_deadline);
  number_ = mpi_.add_world([this] { process_ends(); });
  thread_ = std::thread([this] { run(); });
}

MpiProgressThread::~MpiProgressThread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  thread_.join();
  mpi_.close_world(number_, closed_);
}

// Called where the program calls exit() while this world is open.
void MpiProgressThread::process_ends() {
  abort(say("rank ", rank_.value(), " ended its process by exit() while its world was open (at ",
            progress_.read().position.instruction, ")"));
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, 2 * flush_time, [&] { return has_ended_; });
}

void MpiProgressThread::send(WorldRank to, const Tag& tag, Message message) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({to, tag, std::move(message)});
  }
  if (!poll_by_rank()) wake_.notify_one();
}

bool MpiProgressThread::poll_by_rank() {
  const std::unique_lock lock(calls_, std::try_to_lock);
  if (!lock.owns_lock() || mailbox_->aborted()) return false;
  try {
    polling_round();
  } catch (const std::exception& error) {
    abort_with(error);
  }
  return true;
}

void MpiProgressThread::poll() { poll_by_rank(); }

void MpiProgressThread::sleep_begins() {
  rank_sleeps_ = true;
  {
    const std::lock_guard lock(mutex_);
    wait_began_ = true;
  }
  wake_.notify_one();
}

void MpiProgressThread::wait_ends() {
  rank_sleeps_ = false;
  progress_.wait_ends();
}

void MpiProgressThread::abort(const std::string& reason) noexcept {
  if (mailbox_->abort(reason)) wake_.notify_one();
}

void MpiProgressThread::cancel(const StepKey& step, const std::string& reason) noexcept {
  if (!mailbox_->cancel(step, reason)) return;
  {
    const std::lock_guard lock(mutex_);
    cancellations_.push_back({step, reason});
  }
  wake_.notify_one();
}

void MpiProgressThread::abort_with(const std::exception& error) {
  abort(say("rank ", rank_.value(), ": ", error.what()));
}

void MpiProgressThread::run() {
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // with the default of 50 us, a pause of 20 us lasts 70
  try {
    serve();
    if (!mailbox_->aborted()) close();
  } catch (const std::exception& error) {
    abort_with(error);
  }
  if (mailbox_->aborted()) spread_abort();
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  wake_.notify_all();
}

void MpiProgressThread::set_up(std::chrono::milliseconds start_deadline) {
  /// What the processes tell each other.
  struct Place {
    std::uint64_t host = 0;
    ProcessName process = {};
  };
  static_assert(sizeof(Place) == 3 * sizeof(std::uint64_t));
  const Place own{host_id(), own_process_name()};
  std::vector<Place> places;
  MPI_Request hosts_known = MPI_REQUEST_NULL;
  {
    const std::lock_guard lock(calls_);
    check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Type_contiguous(static_cast<int>(WireBuffer::unit), MPI_BYTE, &block_), "MPI_Type_contiguous");
    check_mpi(MPI_Type_commit(&block_), "MPI_Type_commit");
    int rank = 0;
    check_mpi(MPI_Comm_rank(comm_, &rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    rank_ = WorldRank(rank);
    places.resize(static_cast<std::size_t>(size_));
    check_mpi(MPI_Iallgather(&own, 3, MPI_UINT64_T, places.data(), 3, MPI_UINT64_T, comm_, &hosts_known),
              "MPI_Iallgather");
  }
  mpi_.finish_start(hosts_known, StartDeadline(start_deadline));
  for (std::size_t i = 0; i < places.size(); ++i) {
    hosts_.push_back(places[i].host);
    const WorldRank other(static_cast<std::int32_t>(i));
    if (other != rank_ && places[i].host == own.host) peers_.watch(other, places[i].process);
  }
  const bool own_core = std::count(hosts_.begin(), hosts_.end(), own.host) <= std::thread::hardware_concurrency();
  spin_ns_ = own_core ? spin_on_own_core_ns : spin_on_shared_core_ns;
  if (own_core) policy_.spin = WaitPolicy::spin_on_own_core;
  mailbox_.emplace(rank_, policy_);
  statuses_.resize(static_cast<std::size_t>(size_));
  contacts_.resize(static_cast<std::size_t>(size_));
}

void MpiProgressThread::serve() {
  const auto is_over = [this] {
    const std::scoped_lock lock(calls_, mutex_);
    return closing_ && queue_.empty() && cancellations_.empty() && sending_.empty() && arriving_.empty();
  };
  LastWait wait;
  while (!mailbox_->aborted() && !is_over()) {
    rest(pace_of_round());
    look_after_peers();
    if (const auto peer = last_peer())
      expect(*peer, wait);
    else
      wait = {};
  }
}

std::optional<WorldRank> MpiProgressThread::last_peer() const {
  const std::scoped_lock lock(calls_, mutex_);
  if (!closing_ || !queue_.empty() || !cancellations_.empty()) return std::nullopt;
  for (const auto* transfers : {&sending_, &arriving_})
    if (!transfers->empty()) return transfers->front().peer;
  return std::nullopt;
}

void MpiProgressThread::expect(WorldRank peer, LastWait& wait, bool asks) {
  const std::int64_t now = now_ns(), pause = now - wait.asked_ns;
  if (pause <= policy_.poll_every().count()) return;
  if (pause > 3 * policy_.poll_every().count()) wait.begin_ns = now;  // this process itself was stopped
  const std::int64_t unanswered = contact(peer).unanswered_ns;
  const std::int64_t begin = asks ? std::max(wait.begin_ns, unanswered) : wait.begin_ns;
  require<TransportError>((asks && unanswered == 0) || now - begin < (policy_.deadline + 2 * flush_time).count(),
                          "all work is done here, but ", WaitChain(*this, peer).text(policy_.poll_every() * 2));
  if (asks) {
    const std::lock_guard lock(calls_);
    inquire(peer);
  }
  wait.asked_ns = now;
}

MpiProgressThread::Pace MpiProgressThread::pace_of_round() {
  const std::lock_guard lock(calls_);
  if (polling_round()) return Pace::busy;
  const auto is_long = [](const Transfer& transfer) { return transfer.buffer.size() >= long_message; };
  const bool is_under_way = std::any_of(sending_.begin(), sending_.end(), is_long) ||
                            std::any_of(arriving_.begin(), arriving_.end(), is_long);
  return is_under_way ? Pace::under_way : Pace::idle;
}

void MpiProgressThread::close() {
  // This rank has no transfers left and its own thread makes no more calls, but other ranks may still work and ask for
  // its status.
  progress_.report(end_position);
  rank_sleeps_ = true;
  wait_for_all(/*asks=*/true);
  if (mailbox_->aborted()) return;
  // No rank asks any more. Outstanding questions and answers must complete before the communicator is freed.
  finish_sending(flush_time);
  wait_for_all(/*asks=*/false);
  if (mailbox_->aborted()) return;
  const std::lock_guard lock(calls_);
  receive_arrived();
  abandon_transfers();
  MPI_Type_free(&block_);
  MPI_Comm_free(&comm_);
  closed_ = true;
}

// A barrier that serves other ranks meanwhile, and ends when the world is aborted.
void MpiProgressThread::wait_for_all(bool asks) {
  MPI_Request barrier = MPI_REQUEST_NULL;
  {
    const std::lock_guard lock(calls_);
    check_mpi(MPI_Ibarrier(comm_, &barrier), "MPI_Ibarrier");
  }
  // Every rank watches the next one, so that a rank in the barrier notices a stopped one.
  const WorldRank next((rank_.value() + 1) % size_);
  LastWait wait;
  while (!mailbox_->aborted()) {
    const Pace pace = pace_of_round();
    {
      const std::lock_guard lock(calls_);
      int done = 0;
      check_mpi(MPI_Test(&barrier, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done) return;
    }
    expect(next, wait, asks);
    if (asks) look_after_peers();  // none may end before all have asked for the last time
    rest(pace);
  }
}

void MpiProgressThread::finish_sending(std::chrono::nanoseconds at_most) {
  for (const std::int64_t end = now_ns() + at_most.count(); now_ns() < end;) {
    const Pace pace = pace_of_round();
    {
      const std::lock_guard lock(calls_);
      if (sending_.empty()) return;
    }
    rest(pace);
  }
}

void MpiProgressThread::spread_abort() {
  bool is_own = false;
  {
    const std::scoped_lock lock(calls_, mutex_);
    queue_.clear();
    cancellations_.clear();
    is_own = !is_told_of_abort_;
  }
  if (is_own) {
    try {
      const std::string reason = mailbox_->aborted().value_or("");
      const std::lock_guard lock(calls_);
      for (std::int32_t to = 0; to < size_; ++to)
        if (WorldRank(to) != rank_) begin_send(WorldRank(to), kind_abort, buffer_of(reason));
    } catch (const std::exception& error) {
      warn(say("rank ", rank_.value(), " could not tell the other ranks that it failed: ", error.what()));
    }
  }
  // Transfers that began before the abort may complete meanwhile.
  const std::int64_t end = now_ns() + std::chrono::nanoseconds(is_own ? flush_time : time_for_the_cause).count();
  try {
    const auto is_under_way = [&](const Transfer& transfer) { return !contacts_[transfer.peer.index()].has_ended; };
    const auto is_sent = [&] {
      const std::scoped_lock lock(calls_, mutex_);
      return is_own && std::none_of(sending_.begin(), sending_.end(), is_under_way) &&
             std::none_of(arriving_.begin(), arriving_.end(), is_under_way);
    };
    while (!is_sent() && now_ns() < end) rest(pace_of_round());
  } catch (const std::exception&) {
    // The world has failed already; the first reason remains.
  }
  const std::lock_guard lock(calls_);
  abandon_transfers();
}

// Cancels transfers that do not complete because a rank no longer answers, as far as MPI can cancel them.
void MpiProgressThread::abandon_transfers() {
  for (auto* transfers : {&sending_, &arriving_})
    for (Transfer& transfer : std::exchange(*transfers, {})) {
      int done = 0;
      if (MPI_Test(&transfer.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done) continue;
      MPI_Cancel(&transfer.request);
      MPI_Request_free(&transfer.request);
      // MPI may still access the buffer, so it is never freed.
      static_cast<void>(new WireBuffer(std::move(transfer.buffer)));
    }
}

bool MpiProgressThread::polling_round() {
  bool busy = send_queued();
  busy = receive_arrived() || busy;
  return finish_transfers() || busy;
}

bool MpiProgressThread::send_queued() {
  std::deque<SendRequest> queue;
  std::deque<Cancellation> cancellations;
  std::vector<WorldRank> asks;
  {
    const std::lock_guard lock(mutex_);
    queue.swap(queue_);
    cancellations.swap(cancellations_);
    asks.swap(asks_);
  }
  for (const auto& [to, tag, message] : queue)
    begin_send(to, kind_message, encode(tag, message, {buffers_, shapes_.of(tag)}));
  for (const Cancellation& cancellation : cancellations)
    for (std::int32_t to = 0; to < size_; ++to)
      if (WorldRank(to) != rank_)
        begin_send(WorldRank(to), kind_cancel, buffer_of(cancellation.step, cancellation.reason));
  for (const WorldRank peer : asks) inquire(peer);
  return !queue.empty() || !cancellations.empty();
}

void MpiProgressThread::begin_send(WorldRank to, int kind, WireBuffer buffer) {
  const std::size_t blocks = buffer.size() / WireBuffer::unit;
  require<TransportError>(blocks <= std::numeric_limits<int>::max(), "a message of ", buffer.size(), " bytes to rank ",
                          to.value(), " is too long for MPI: use smaller micro-batches");
  Transfer& transfer = sending_.emplace_back(Transfer{std::move(buffer), to});
  check_mpi(
      MPI_Isend(transfer.buffer.data(), static_cast<int>(blocks), block_, to.value(), kind, comm_, &transfer.request),
      "MPI_Isend");
}

bool MpiProgressThread::receive_arrived() {
  bool any = false;
  for (int found = 1; found;) {
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    check_mpi(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, &handle, &status), "MPI_Improbe");
    if (!found) break;
    any = true;
    int blocks = 0;
    check_mpi(MPI_Get_count(&status, block_, &blocks), "MPI_Get_count");
    Transfer transfer{WireBuffer(static_cast<std::size_t>(blocks) * WireBuffer::unit, buffers_),
                      WorldRank(status.MPI_SOURCE)};
    if (status.MPI_TAG == kind_message) {
      // Not MPI_Mrecv: a large message would delay the ones behind it.
      check_mpi(MPI_Imrecv(transfer.buffer.data(), blocks, block_, &handle, &transfer.request), "MPI_Imrecv");
      arriving_.push_back(std::move(transfer));
    } else {
      check_mpi(MPI_Mrecv(transfer.buffer.data(), blocks, block_, &handle, MPI_STATUS_IGNORE), "MPI_Mrecv");
      received(transfer.peer, status.MPI_TAG, std::move(transfer.buffer));
    }
  }
  return any;
}

bool MpiProgressThread::finish_transfers() {
  bool any = false;
  const auto done = [&](Transfer& transfer) {
    int flag = 0;
    check_mpi(MPI_Test(&transfer.request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    any = any || flag;
    return flag != 0;
  };
  std::erase_if(sending_, done);
  const auto first_done =
      std::stable_partition(arriving_.begin(), arriving_.end(), [&](Transfer& transfer) { return !done(transfer); });
  // Removed from the list first: received() may throw.
  std::vector<Transfer> arrived(std::make_move_iterator(first_done), std::make_move_iterator(arriving_.end()));
  arriving_.erase(first_done, arriving_.end());
  for (Transfer& transfer : arrived) received(transfer.peer, kind_message, std::move(transfer.buffer));
  return any;
}

void MpiProgressThread::received(WorldRank from, int kind, WireBuffer buffer) {
  switch (kind) {
    case kind_message: {
      auto [tag, message] = decode(std::move(buffer), &shapes_);
      message.arrived_ns = now_ns();
      if (!shares_host(from)) message.sent_ns = 0;  // on the clock of another host
      heard_of(from, &tag);
      mailbox_->put(from, tag, std::move(message));
      break;
    }
    case kind_question:
      heard_of(from, nullptr);
      answer(from, buffer);
      break;
    case kind_answer: answered(from, buffer); break;
    case kind_cancel:
      mailbox_->cancel(value_of<StepKey>(buffer), reinterpret_cast<const char*>(buffer.data()) + sizeof(StepKey));
      break;
    default: is_told_of_abort_ |= mailbox_->abort(std::string(reinterpret_cast<const char*>(buffer.data())));
  }
}

void MpiProgressThread::rest(Pace pace) {
  const std::int64_t now = now_ns();
  if (pace == Pace::busy) {
    busy_ns_ = now;
    return;
  }
  const std::int64_t idle_ns = now - busy_ns_;
  if (rank_sleeps_ && idle_ns < spin_ns_) return;

  const Pauses pauses = rank_sleeps_ ? pauses_urgent : pace == Pace::under_way ? pauses_under_way : pauses_idle;
  const std::chrono::nanoseconds pause(std::clamp(idle_ns / idle_per_pause, pauses.shortest_ns, pauses.longest_ns));
  std::unique_lock lock(mutex_);
  const auto has_work = [&] { return !queue_.empty() || !cancellations_.empty() || !asks_.empty() || wait_began_; };
  if (wake_.wait_for(lock, pause, has_work)) busy_ns_ = now_ns();
  wait_began_ = false;
}

}  // namespace penstock
