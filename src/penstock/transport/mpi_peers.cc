// What a progress thread knows of the other ranks: the part of MpiProgressThread that asks, answers and watches.
#include <algorithm>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/transport/control_messages.h"
#include "penstock/transport/mpi_progress_thread.h"

namespace penstock {
namespace {

using namespace control_messages;

/// mpirun ends the other processes a second after one has died: until then they have time to say what they waited for.
constexpr std::chrono::milliseconds look_every{10};

}  // namespace

void MpiProgressThread::ask(WorldRank peer) {
  {
    const std::lock_guard lock(mutex_);
    if (std::find(asks_.begin(), asks_.end(), peer) == asks_.end()) asks_.push_back(peer);
  }
  wake_.notify_one();
}

std::optional<PeerStatus> MpiProgressThread::status(WorldRank rank) const {
  if (rank == rank_) return progress_.read();
  const std::lock_guard lock(mutex_);
  return statuses_[rank.index()];
}

Contact MpiProgressThread::contact(WorldRank rank) const {
  const std::lock_guard lock(mutex_);
  return contacts_[rank.index()];
}

void MpiProgressThread::heard_of(WorldRank peer, const Tag* tag) {
  const std::lock_guard lock(mutex_);
  Contact& contact = contacts_[peer.index()];
  contact.heard_ns = now_ns();
  if (contact.unanswered_ns > 0) contact.unanswered_ns = contact.heard_ns;
  if (const auto step = tag ? step_of(*tag) : std::nullopt; step && step->step < StepKey::background)
    contact.step = std::max(contact.step, static_cast<std::int64_t>(step->step));
}

void MpiProgressThread::inquire(WorldRank peer) {
  ++inquiry_;
  inquired_.clear();
  question(peer);
}

void MpiProgressThread::question(WorldRank peer) {
  inquired_.push_back(peer);
  if (peer != rank_) {
    const std::lock_guard lock(mutex_);
    Contact& contact = contacts_[peer.index()];
    if (contact.unanswered_ns == 0) contact.unanswered_ns = now_ns();
  }
  if (peer != rank_) begin_send(peer, kind_question, buffer_of(Question{inquiry_}));
}

void MpiProgressThread::answer(WorldRank to, const WireBuffer& asked) {
  const PeerStatus own = progress_.read();
  Answer reply;
  reply.inquiry = value_of<Question>(asked).inquiry;
  reply.position = own.position;
  reply.since_age_ns = own.heard_ns - own.since_ns;
  reply.moved_age_ns = own.heard_ns - own.moved_ns;
  if (own.waits_for) reply.waits_for = own.waits_for->value();
  begin_send(to, kind_answer, buffer_of(reply));
}

void MpiProgressThread::answered(WorldRank from, const WireBuffer& buffer) {
  const auto reply = value_of<Answer>(buffer);
  PeerStatus status{reply.position, 0, 0, now_ns(), std::nullopt};
  status.since_ns = status.heard_ns - reply.since_age_ns;
  status.moved_ns = status.heard_ns - reply.moved_age_ns;
  if (reply.waits_for >= 0) status.waits_for = WorldRank(reply.waits_for);
  {
    const std::lock_guard lock(mutex_);
    statuses_[from.index()] = status;
    contacts_[from.index()].heard_ns = status.heard_ns;
    contacts_[from.index()].unanswered_ns = 0;
  }
  // Follows the chain of waits, each rank once. An answer to an older inquiry only updates the status.
  const bool current = reply.inquiry == inquiry_ && status.waits_for && status.waits_for->value() < size_;
  if (current && std::find(inquired_.begin(), inquired_.end(), *status.waits_for) == inquired_.end())
    question(*status.waits_for);
}

void MpiProgressThread::look_after_peers() {
  const std::int64_t now = now_ns();
  if (now - looked_ns_ < std::chrono::nanoseconds(look_every).count()) return;
  const std::int64_t pause = now - std::exchange(looked_ns_, now);
  // After this process itself was stopped, what the others have sent meanwhile comes first: it may be their reason.
  if (pause > 10 * std::chrono::nanoseconds(look_every).count()) return;
  const auto ended = peers_.ended();
  if (!ended) return;
  // What the process sent before it ended may contain its reason.
  while (pace_of_round() == Pace::busy) {
  }
  {
    const std::lock_guard lock(mutex_);
    contacts_[ended->rank.index()].has_ended = true;
  }
  const Position own = progress_.read().position;
  abort(say("rank ", ended->rank.value(), " has died: its process ", ended->process, " has ended; rank ", rank_.value(),
            " was at ", own.instruction, own.step < 0 ? "" : say(" in step ", own.step)));
}

bool MpiProgressThread::is_lost(WorldRank rank) const {
  if (!mailbox_->aborted()) return false;
  const std::scoped_lock lock(calls_, mutex_);
  // A rank whose failure has come from another one may itself have been stopped meanwhile: then all others seem lost.
  if (is_told_of_abort_) return false;
  const Contact& last = contacts_[rank.index()];
  return last.has_ended || (last.unanswered_ns > 0 && now_ns() - last.unanswered_ns >= policy_.deadline.count());
}

}  // namespace penstock
