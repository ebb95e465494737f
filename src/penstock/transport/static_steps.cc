#include "penstock/transport/static_steps.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/transport/records.h"

namespace penstock {

/// The messages of a step between two ranks, as one of them counts.
struct StaticSteps::Counts {
  static constexpr std::string_view record_name = "StaticSteps::Counts";
  std::uint64_t sent = 0, received = 0;
};

void StaticSteps::begin(const StepKey& step, const std::shared_ptr<const StepForm>& form) {
  current_.reset();
  std::erase_if(forms_, [&](const auto& known) { return known.first != form && known.first.use_count() == 1; });
  current_.emplace(CurrentStep{step, form, forms_[form]});
  for_each_pair([](PairMessages& pair) { pair.now = {}; });
}

void StaticSteps::begin_capture() {
  if (!current_) return;
  if (current_->form->memory) current_->form->memory->forget();
  for_each_pair([](PairMessages& pair) { pair.now.reserved = 0; });
}

void StaticSteps::end_capture() {
  if (!current_) return;
  if (current_->form->memory) current_->form->memory->forget();  // each replay writes it
  for_each_pair([](PairMessages& pair) {
    pair.now.reserved = pair.now.received;
    pair.captured = pair.now;
  });
}

void StaticSteps::repeat_capture() {
  if (current_) for_each_pair([](PairMessages& pair) { pair.now = pair.captured; });
}

void StaticSteps::confirm(const HostMessages& host) {
  if (!current_) return;
  for (const auto& [to, pair] : current_->form_state.to)
    if (pair.are_known) tell(to, {.sent = pair.now.sent}, host);
  for (auto& [from, pair] : current_->form_state.from) {
    if (!pair.are_known) continue;
    const Counts its = ask(from, say("what it has sent in step ", current_->key.step), host);
    require<ConfigError>(its.sent >= pair.now.taken, "rank ", rank_.value(), " has taken ", pair.now.taken,
                         " messages of rank ", from.value(), ", which has sent ", its.sent, StepMessages::advice);
    pair.now.confirmed = its.sent;
  }
}

void StaticSteps::end(const HostMessages& host, const std::set<WorldRank>& peers) {
  if (!current_) return;
  if (current_->form_state.is_new)
    compare_counts(host, peers);
  else
    for (const auto& [to, pair] : current_->form_state.to)
      if (pair.are_known) pair.messages.require_count(pair.now.sent, {rank_, to}, current_->form->name);
  current_.reset();
}

// Ranks that count alike have the same messages in the same order: that in which they were sent.
void StaticSteps::compare_counts(const HostMessages& host, const std::set<WorldRank>& peers) {
  FormState& state = current_->form_state;
  const auto decide = [](PairMessages& pair, std::uint64_t its_count) {
    pair.are_known = its_count > 0 && pair.messages.size() == its_count;
    if (!pair.are_known) pair.messages = {};
  };
  for (const WorldRank peer : peers)
    tell(peer, {state.to[peer].messages.size(), state.from[peer].messages.size()}, host);
  for (const WorldRank peer : peers) {
    const Counts its = ask(peer, say("its number of messages in step ", current_->key.step), host);
    decide(state.to[peer], its.received);
    decide(state.from[peer], its.sent);
  }
  state.is_new = false;
}

bool StaticSteps::announces(WorldRank to, const Tag& tag, const std::vector<Payload>& outline) {
  if (!belongs(tag)) return true;
  PairMessages& pair = current_->form_state.to[to];
  MessageOutline message = MessageOutline::of(tag, outline);
  if (pair.are_known) {
    pair.messages.require_same(pair.now.sent++, message, current_->form->name);
    return !message.is_on_devices;
  }
  if (current_->form_state.is_new) pair.messages.add(std::move(message));
  return true;
}

void StaticSteps::remember(WorldRank from, const Tag& tag, const std::vector<Payload>& outline) {
  if (belongs(tag) && current_->form_state.is_new)
    current_->form_state.from[from].messages.add(MessageOutline::of(tag, outline));
}

bool StaticSteps::are_known(WorldRank from, const Tag& tag) const {
  if (!belongs(tag)) return false;
  const auto pair = current_->form_state.from.find(from);
  return pair != current_->form_state.from.end() && pair->second.are_known;
}

std::vector<WorldRank> StaticSteps::known_senders() const {
  std::vector<WorldRank> senders;
  for (const auto& [from, pair] : current_->form_state.from)
    if (pair.are_known) senders.push_back(from);
  return senders;
}

std::vector<WorldRank> StaticSteps::unconfirmed_senders() const {
  std::vector<WorldRank> senders;
  if (!current_) return senders;
  for (const auto& [from, pair] : current_->form_state.from)
    if (pair.now.taken > pair.now.confirmed) senders.push_back(from);
  return senders;
}

MessageOutline StaticSteps::in_this_step(MessageOutline message) const {
  message.tag.step = current_->key.step;
  return message;
}

MessageOutline StaticSteps::next(WorldRank from) {
  PairMessages& pair = current_->form_state.from.at(from);
  require<ConfigError>(pair.now.received < pair.messages.size(), "rank ", rank_.value(), " expects more than the ",
                       pair.messages.size(), " messages that rank ", from.value(), " has sent in the first step of ",
                       current_->form->name, StepMessages::advice);
  return in_this_step(pair.messages[pair.now.received++]);
}

std::optional<MessageOutline> StaticSteps::next_to_reserve(WorldRank from) {
  PairMessages& pair = current_->form_state.from.at(from);
  const std::size_t wanted = pair.now.taken + static_cast<std::size_t>(current_->form->posts);
  pair.now.reserved = std::max(pair.now.reserved, pair.now.received);
  if (pair.now.reserved >= std::min(wanted, pair.messages.size())) return std::nullopt;
  return in_this_step(pair.messages[pair.now.reserved++]);
}

std::optional<ReceiveMemory::Given> StaticSteps::memory_of(Tag tag, std::size_t payload, const torch::Tensor& like,
                                                           const c10::Stream& reader) {
  if (!belongs(tag) || !current_->form->memory || current_->form_state.is_new || like.numel() == 0) return std::nullopt;
  tag.step = 0;
  const auto buffer = current_->form->buffers.find(tag);
  if (buffer == current_->form->buffers.end()) return std::nullopt;
  return current_->form->memory->tensor({buffer->second, payload}, like, reader);
}

void StaticSteps::tell(WorldRank to, const Counts& counts, const HostMessages& host) {
  host.send({to, control_tag(pipeline_of_world, Topic::static_step, told_[to]++), message_of(counts)});
}

StaticSteps::Counts StaticSteps::ask(WorldRank from, const std::string& waiting_for, const HostMessages& host) {
  return record_in<Counts>(
      host.receive(from, control_tag(pipeline_of_world, Topic::static_step, asked_[from]++), waiting_for));
}

}  // namespace penstock
