#include "penstock/transport/processes/progress_thread.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/base/process.h"
#include "penstock/transport/processes/control_messages.h"

namespace penstock::processes {
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

  std::chrono::nanoseconds after(std::int64_t idle_ns) const {
    return std::chrono::nanoseconds(std::clamp(idle_ns / idle_per_pause, shortest_ns, longest_ns));
  }
};
/// While the rank's thread sleeps, its core is free and the awaited message is urgent. So is what the thread waits for
/// by itself.
constexpr Pauses pauses_urgent{20'000, 200'000};
/// A long transfer may need calls of the library on both ends for each of its parts.
constexpr Pauses pauses_under_way{250'000, 500'000};
/// A rank that computes polls by itself when it next receives; a short message needs no poll before that.
constexpr Pauses pauses_idle{2'000'000, 2'000'000};
/// A network that notifies ends a pause by itself.
constexpr Pauses pauses_notified{10'000'000, 10'000'000};
constexpr std::size_t long_message = 256 << 10;  // bytes
constexpr std::chrono::milliseconds flush_time{500};
/// How long a process that received an abort waits before it ends. The launcher ends all processes as soon as one has
/// ended; until then the process that failed must have printed its error.
constexpr std::chrono::milliseconds time_for_the_cause{300};
/// mpirun ends the other processes a second after one has died: until then they have time to say what they waited for.
constexpr std::chrono::milliseconds look_every{10};

/// Whether each rank of this process's host has a core of its own.
bool has_own_core(const BufferNetwork& network) {
  const std::vector<ProcessPlace>& places = network.places();
  const std::uint64_t here = places[network.rank().index()].host;
  return std::count_if(places.begin(), places.end(), [&](const ProcessPlace& place) { return place.host == here; }) <=
         static_cast<std::int64_t>(std::thread::hardware_concurrency());
}

/// Where threads of the network deliver messages, they need the core more than a rank that spins.
transport::WaitPolicy policy_over(const BufferNetwork& network, transport::WaitPolicy policy) {
  if (has_own_core(network) && network.must_be_polled()) policy.spin = transport::WaitPolicy::spin_on_own_core;
  return policy;
}

}  // namespace

ProgressThread::ProgressThread(std::unique_ptr<BufferNetwork> network, transport::WaitPolicy policy,
                               std::function<void()> on_abort)
    : network_(std::move(network)),
      policy_(policy_over(*network_, policy)),
      on_abort_(std::move(on_abort)),
      inquiry_(
          rank_, network_->size(), progress_,
          [this](WorldRank to, int kind, WireBuffer buffer) { network_->begin_send(to, kind, std::move(buffer)); }),
      mailbox_(rank_, policy_),
      spin_ns_(has_own_core(*network_) ? spin_on_own_core_ns : spin_on_shared_core_ns) {
  const std::vector<ProcessPlace>& places = network_->places();
  for (std::size_t i = 0; i < places.size(); ++i) {
    const WorldRank rank(static_cast<std::int32_t>(i));
    if (rank != rank_ && shares_host(rank)) peers_.watch(rank, places[i].process);
  }
  try {
    // Others may have sent already: from here on every member is used.
    network_->notify([this] { has_news(); });
    network_->watch_exit([this] { process_ends(); });
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    const std::lock_guard lock(calls_);
    network_->abandon();  // its threads use members that are destroyed before it
    throw;
  }
}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  thread_.join();
  network_.reset();  // no call of process_ends() or has_news() after this
}

// Called on a thread of the network. Receives at once, without waking thread_ first, where the network is free.
void ProgressThread::has_news() {
  if (poll_by_rank()) return;
  {
    const std::lock_guard lock(mutex_);
    has_news_ = true;
  }
  wake_.notify_one();
}

// Called where the program calls exit() while this world is open.
void ProgressThread::process_ends() {
  abort(say("rank ", rank_.value(), " ended its process by exit() while its world was open (at ",
            progress_.read().position.instruction, ")"));
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, 2 * flush_time, [&] { return has_ended_; });
}

void ProgressThread::send(WorldRank to, const Tag& tag, Message message) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({to, tag, std::move(message)});
  }
  if (!poll_by_rank()) wake_.notify_one();
}

bool ProgressThread::poll_by_rank() {
  const std::unique_lock lock(calls_, std::try_to_lock);
  if (!lock.owns_lock() || mailbox_.aborted()) return false;
  try {
    polling_round();
  } catch (const std::exception& error) {
    abort_with(error);
  }
  return true;
}

void ProgressThread::poll() { poll_by_rank(); }

void ProgressThread::wait_until(const std::function<bool()>& is_done,
                                const std::vector<transport::AwaitedRank>& awaited, const std::string& waiting_for) {
  const std::int64_t begin = now_ns();
  transport::WaitGuard guard(rank_, awaited, policy_, *this, begin);
  while (!mailbox_.aborted() && !is_done()) {
    const std::int64_t now = now_ns(), waited = now - begin;
    if (now >= guard.next_check_ns()) guard.check(waiting_for, now);
    if (waited < spin_ns_)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(pauses_urgent.after(waited));
  }
  if (const auto reason = mailbox_.aborted())
    throw WorldAborted(say("rank ", rank_.value(), " gave up waiting for ", waiting_for, ": ", *reason));
  progress_.move();
}

void ProgressThread::sleep_begins() {
  rank_sleeps_ = true;
  if (!must_poll_) return;
  {
    const std::lock_guard lock(mutex_);
    wait_began_ = true;
  }
  wake_.notify_one();
}

void ProgressThread::wait_ends() {
  rank_sleeps_ = false;
  progress_.wait_ends();
}

void ProgressThread::abort(const std::string& reason) noexcept {
  if (mailbox_.abort(reason)) wake_.notify_one();
}

void ProgressThread::cancel(const StepKey& step, const std::string& reason) noexcept {
  if (!mailbox_.cancel(step, reason)) return;
  {
    const std::lock_guard lock(mutex_);
    cancellations_.push_back({step, reason});
  }
  wake_.notify_one();
}

void ProgressThread::abort_with(const std::exception& error) { abort(say("rank ", rank_.value(), ": ", error.what())); }

void ProgressThread::run() {
  name_this_thread(say("messages ", rank_.value()));
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // with the default of 50 us, a pause of 20 us lasts 70
  try {
    serve();
    if (!mailbox_.aborted()) close();
  } catch (const std::exception& error) {
    abort_with(error);
  }
  if (mailbox_.aborted()) {
    on_abort_();
    spread_abort();
  }
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  wake_.notify_all();
}

void ProgressThread::serve() {
  const auto is_over = [this] {
    const std::scoped_lock lock(calls_, mutex_);
    return closing_ && queue_.empty() && cancellations_.empty() && network_->transfers().empty();
  };
  LastWait wait;
  while (!mailbox_.aborted() && !is_over()) {
    rest(pace_of_round());
    look_after_peers();
    if (const auto peer = last_peer())
      expect(*peer, wait);
    else
      wait = {};
  }
}

std::optional<WorldRank> ProgressThread::last_peer() const {
  const std::scoped_lock lock(calls_, mutex_);
  if (!closing_ || !queue_.empty() || !cancellations_.empty()) return std::nullopt;
  const auto transfers = network_->transfers();
  return transfers.empty() ? std::nullopt : std::optional(transfers.front().peer);
}

void ProgressThread::expect(WorldRank peer, LastWait& wait, bool asks) {
  const std::int64_t now = now_ns(), pause = now - wait.asked_ns;
  if (pause <= policy_.poll_every().count()) return;
  if (pause > 3 * policy_.poll_every().count()) wait.begin_ns = now;  // this process itself was stopped
  const std::int64_t unanswered = contact(peer).unanswered_ns;
  const std::int64_t begin = asks ? std::max(wait.begin_ns, unanswered) : wait.begin_ns;
  require<TransportError>((asks && unanswered == 0) || now - begin < (policy_.deadline + 2 * flush_time).count(),
                          "all work is done here, but ",
                          transport::WaitChain(*this, peer).text(policy_.poll_every() * 2));
  if (asks) {
    const std::lock_guard lock(calls_);
    inquiry_.begin(peer);
  }
  wait.asked_ns = now;
}

ProgressThread::Pace ProgressThread::pace_of_round() {
  const std::lock_guard lock(calls_);
  if (polling_round()) return Pace::busy;
  if (!must_poll_) return Pace::idle;
  const auto is_long = [](const BufferNetwork::Transfer& transfer) { return transfer.bytes >= long_message; };
  const auto transfers = network_->transfers();
  return std::any_of(transfers.begin(), transfers.end(), is_long) ? Pace::under_way : Pace::idle;
}

void ProgressThread::close() {
  // This rank has no transfers left and its own thread makes no more calls, but other ranks may still work and ask for
  // its status.
  progress_.report(end_position);
  rank_sleeps_ = true;
  wait_for_all(/*asks=*/true);
  if (mailbox_.aborted()) return;
  // No rank asks any more. Outstanding questions and answers must complete before the network closes.
  finish_sending(flush_time);
  wait_for_all(/*asks=*/false);
  if (mailbox_.aborted()) return;
  const std::lock_guard lock(calls_);
  network_->close();
}

// A barrier that serves other ranks meanwhile, and ends when the world is aborted.
void ProgressThread::wait_for_all(bool asks) {
  {
    const std::lock_guard lock(calls_);
    network_->begin_barrier();
  }
  // Every rank watches the next one, so that a rank in the barrier notices a stopped one.
  const WorldRank next((rank_.value() + 1) % size());
  LastWait wait;
  while (!mailbox_.aborted()) {
    const Pace pace = pace_of_round();
    {
      const std::lock_guard lock(calls_);
      if (network_->is_barrier_done()) return;
    }
    expect(next, wait, asks);
    if (asks) look_after_peers();  // none may end before all have asked for the last time
    rest(pace);
  }
}

void ProgressThread::finish_sending(std::chrono::nanoseconds at_most) {
  for (const std::int64_t end = now_ns() + at_most.count(); now_ns() < end;) {
    const Pace pace = pace_of_round();
    {
      const std::lock_guard lock(calls_);
      if (network_->transfers().empty()) return;
    }
    rest(pace);
  }
}

void ProgressThread::spread_abort() {
  bool is_own = false;
  {
    const std::scoped_lock lock(calls_, mutex_);
    queue_.clear();
    cancellations_.clear();
    is_own = !is_told_of_abort_;
  }
  if (is_own) {
    try {
      const std::string reason = mailbox_.aborted().value_or("");
      const std::lock_guard lock(calls_);
      for (std::int32_t to = 0; to < size(); ++to)
        if (WorldRank(to) != rank_) network_->begin_send(WorldRank(to), kind_abort, buffer_of(reason));
    } catch (const std::exception& error) {
      warn(say("rank ", rank_.value(), " could not tell the other ranks that it failed: ", error.what()));
    }
  }
  // Transfers that began before the abort may complete meanwhile.
  const std::int64_t end = now_ns() + std::chrono::nanoseconds(is_own ? flush_time : time_for_the_cause).count();
  try {
    const auto is_under_way = [&](const BufferNetwork::Transfer& transfer) {
      return !contact(transfer.peer).has_ended;
    };
    const auto is_sent = [&] {
      const std::scoped_lock lock(calls_, mutex_);
      const auto transfers = network_->transfers();
      return is_own && std::none_of(transfers.begin(), transfers.end(), is_under_way);
    };
    while (!is_sent() && now_ns() < end) rest(pace_of_round());
  } catch (const std::exception&) {
    // The world has failed already; the first reason remains.
  }
  const std::lock_guard lock(calls_);
  network_->abandon();
}

bool ProgressThread::polling_round() {
  const bool sends = send_queued();
  std::vector<BufferNetwork::Arrival> arrived;
  const bool advances = network_->advance(arrived);
  for (BufferNetwork::Arrival& arrival : arrived) received(std::move(arrival));
  return sends || advances;
}

bool ProgressThread::send_queued() {
  std::deque<SendRequest> queue;
  std::deque<Cancellation> cancellations;
  std::vector<WorldRank> asks;
  {
    const std::lock_guard lock(mutex_);
    queue.swap(queue_);
    cancellations.swap(cancellations_);
    asks.swap(asks_);
  }
  // A cancellation goes before the messages, so that what was sent after it in its step is not received.
  for (const Cancellation& cancellation : cancellations)
    for (std::int32_t to = 0; to < size(); ++to)
      if (WorldRank(to) != rank_)
        network_->begin_send(WorldRank(to), kind_cancel, buffer_of(cancellation.step, cancellation.reason));
  for (const SendRequest& request : queue) begin_send(request);
  for (const WorldRank peer : asks) inquiry_.begin(peer);
  return !queue.empty() || !cancellations.empty();
}

void ProgressThread::begin_send(const SendRequest& request) {
  // So a format arrives before the messages that name it.
  static_assert(2 * WireBuffer::unit + SentFormats::longest_bytes <= BufferNetwork::longest_in_order);
  const auto& [to, tag, message] = request;
  SentFormats* formats = has_recurring_formats(tag) ? &sent_formats_[to] : nullptr;
  WireBuffer buffer = encode(tag, message, {network_->pool(), shapes_.of(tag), formats});
  ++messages_sent_;
  if (formats)
    if (const auto format = formats->take_new())
      network_->begin_send(to, kind_format, buffer_of(format->number, format->format));
  network_->begin_send(to, kind_message, std::move(buffer));
}

MessageCosts ProgressThread::message_costs() const {
  const std::lock_guard lock(calls_);
  MessageCosts costs{.sent = messages_sent_, .described = 0, .allocated = network_->pool()->allocations()};
  for (const auto& [to, formats] : sent_formats_) costs.described += formats.descriptions();
  return costs;
}

void ProgressThread::received(BufferNetwork::Arrival arrival) {
  const WorldRank from = arrival.from;
  WireBuffer& buffer = arrival.buffer;
  switch (arrival.kind) {
    case kind_message: {
      auto [tag, message] = decode(std::move(buffer), {&shapes_, &received_formats_[from]});
      message.arrived_ns = now_ns();
      if (!shares_host(from)) message.sent_ns = 0;  // on the clock of another host
      inquiry_.heard_of(from, &tag);
      mailbox_.put(from, tag, std::move(message));
      break;
    }
    case kind_format:
      received_formats_[from].add(value_of<std::int32_t>(buffer), std::string(bytes_behind<std::int32_t>(buffer)));
      break;
    case kind_question:
      inquiry_.heard_of(from, nullptr);
      inquiry_.answer(from, buffer);
      break;
    case kind_answer: inquiry_.take_answer(from, buffer); break;
    case kind_cancel: mailbox_.cancel(value_of<StepKey>(buffer), bytes_behind<StepKey>(buffer).data()); break;
    default: is_told_of_abort_ |= mailbox_.abort(std::string(reinterpret_cast<const char*>(buffer.data())));
  }
}

void ProgressThread::rest(Pace pace) {
  const std::int64_t now = now_ns();
  if (pace == Pace::busy) {
    busy_ns_ = now;
    return;
  }
  const std::int64_t idle_ns = now - busy_ns_;
  if (must_poll_ && rank_sleeps_ && idle_ns < spin_ns_) return;

  const Pauses pauses = !must_poll_               ? pauses_notified
                        : rank_sleeps_            ? pauses_urgent
                        : pace == Pace::under_way ? pauses_under_way
                                                  : pauses_idle;
  std::unique_lock lock(mutex_);
  const auto has_work = [&] {
    return !queue_.empty() || !cancellations_.empty() || !asks_.empty() || wait_began_ || has_news_;
  };
  if (wake_.wait_for(lock, pauses.after(idle_ns), has_work)) busy_ns_ = now_ns();
  wait_began_ = has_news_ = false;
}

void ProgressThread::ask(WorldRank peer) {
  {
    const std::lock_guard lock(mutex_);
    if (std::find(asks_.begin(), asks_.end(), peer) == asks_.end()) asks_.push_back(peer);
  }
  wake_.notify_one();
}

void ProgressThread::look_after_peers() {
  const std::int64_t now = now_ns();
  if (now - looked_ns_ < std::chrono::nanoseconds(look_every).count()) return;
  const std::int64_t pause = now - std::exchange(looked_ns_, now);
  // After this process itself was stopped, what the others have sent meanwhile comes first: it may be their reason.
  if (pause > 10 * std::chrono::nanoseconds(look_every).count()) return;
  if (const auto ended = peers_.ended()) {
    lost(ended->rank, say("has died: its process ", ended->process, " has ended"));
    return;
  }
  std::optional<BufferNetwork::Break> broken;
  {
    const std::lock_guard lock(calls_);
    broken = network_->take_break();
  }
  if (broken) lost(broken->peer, say("has died or cannot be reached: ", broken->reason));
}

void ProgressThread::lost(WorldRank peer, const std::string& how) {
  // What the process sent before it ended may contain its reason. MPI may look before it makes progress, so that only a
  // second round finds it; threads of other networks may have to read it first.
  constexpr int idle_rounds = 3;
  for (int idle = 0; idle < idle_rounds; ++idle) {
    while (pace_of_round() == Pace::busy) idle = 0;
    if (!must_poll_) rest(Pace::idle);
  }
  inquiry_.has_ended(peer);
  const std::string place = transport::last_place_of(status(peer), contact(peer));
  abort(say("rank ", peer.value(), " ", how, place.empty() ? "" : ", last ", place, "; rank ", rank_.value(), " was ",
            transport::place_of(progress_.read().position)));
}

bool ProgressThread::is_lost(WorldRank rank) const {
  if (!mailbox_.aborted()) return false;
  const std::lock_guard lock(calls_);
  // A rank whose failure has come from another one may itself have been stopped meanwhile: then all others seem lost.
  if (is_told_of_abort_) return false;
  const transport::Contact last = contact(rank);
  return last.has_ended || (last.unanswered_ns > 0 && now_ns() - last.unanswered_ns >= policy_.deadline.count());
}

}  // namespace penstock::processes
