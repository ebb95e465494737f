#include "penstock/transport/processes/peer_inquiry.h"

#include <algorithm>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/transport/processes/control_messages.h"

namespace penstock::processes {

using namespace control_messages;

PeerInquiry::PeerInquiry(WorldRank rank, int size, const transport::Progress& progress, Send send)
    : rank_(rank),
      progress_(progress),
      send_(std::move(send)),
      statuses_(static_cast<std::size_t>(size)),
      contacts_(static_cast<std::size_t>(size)) {}

std::optional<transport::PeerStatus> PeerInquiry::status(WorldRank rank) const {
  if (rank == rank_) return progress_.read();
  const std::lock_guard lock(mutex_);
  return statuses_[rank.index()];
}

transport::Contact PeerInquiry::contact(WorldRank rank) const {
  const std::lock_guard lock(mutex_);
  return contacts_[rank.index()];
}

void PeerInquiry::heard_of(WorldRank peer, const Tag* tag) {
  const std::lock_guard lock(mutex_);
  transport::Contact& contact = contacts_[peer.index()];
  contact.heard_ns = now_ns();
  if (contact.unanswered_ns > 0) contact.unanswered_ns = contact.heard_ns;
  if (tag) contact.heard(*tag, contact.heard_ns);
}

void PeerInquiry::has_ended(WorldRank peer) {
  const std::lock_guard lock(mutex_);
  contacts_[peer.index()].has_ended = true;
}

void PeerInquiry::begin(WorldRank first) {
  ++inquiry_;
  asked_.clear();
  ask(first);
}

void PeerInquiry::ask(WorldRank peer) {
  asked_.push_back(peer);
  if (peer == rank_) return;
  {
    const std::lock_guard lock(mutex_);
    transport::Contact& contact = contacts_[peer.index()];
    if (contact.unanswered_ns == 0) contact.unanswered_ns = now_ns();
  }
  send_(peer, kind_question, buffer_of(Question{inquiry_}));
}

void PeerInquiry::answer(WorldRank from, const WireBuffer& question) {
  const transport::PeerStatus own = progress_.read();
  Answer reply;
  reply.inquiry = value_of<Question>(question).inquiry;
  reply.position = own.position;
  reply.since_age_ns = own.heard_ns - own.since_ns;
  reply.moved_age_ns = own.heard_ns - own.moved_ns;
  if (own.waits_for) reply.waits_for = own.waits_for->value();
  send_(from, kind_answer, buffer_of(reply));
}

void PeerInquiry::take_answer(WorldRank from, const WireBuffer& answer) {
  const auto reply = value_of<Answer>(answer);
  transport::PeerStatus status{reply.position, 0, 0, now_ns(), std::nullopt};
  status.since_ns = status.heard_ns - reply.since_age_ns;
  status.moved_ns = status.heard_ns - reply.moved_age_ns;
  if (reply.waits_for >= 0) status.waits_for = WorldRank(reply.waits_for);
  {
    const std::lock_guard lock(mutex_);
    statuses_[from.index()] = status;
    contacts_[from.index()].heard_ns = status.heard_ns;
    contacts_[from.index()].unanswered_ns = 0;
  }
  const bool is_current = reply.inquiry == inquiry_ && status.waits_for && status.waits_for->index() < statuses_.size();
  if (is_current && std::find(asked_.begin(), asked_.end(), *status.waits_for) == asked_.end()) ask(*status.waits_for);
}

}  // namespace penstock::processes
