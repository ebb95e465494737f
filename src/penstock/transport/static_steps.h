// The static steps of one rank (data_plane.h): what the first step of each form has exchanged, and how far the current
// one is. It decides which messages need no announcement (device_channels.h).
//
// In the first step of a form both ranks of a pair remember the announcements, and at its end they compare how many
// there were. In the next steps the receiver knows each message but for the numbers of its tensors: it needs no
// announcement, unless it has a tensor on the CPU, the numbers of which the announcement contains.
//
//   sender     announces(message 0), announces(message 1), ...    each must be like the one remembered
//   receiver   next() gives message 0, 1, ... in the sender's order; memory is reserved for `posts` messages behind
//              those that are taken
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "penstock/transport/data_plane.h"
#include "penstock/transport/host_messages.h"
#include "penstock/transport/receive_memory.h"
#include "penstock/transport/step_messages.h"

namespace penstock {

/// Used on its rank's thread.
class StaticSteps {
 public:
  explicit StaticSteps(WorldRank rank) : rank_(rank) {}

  void begin(const StepKey& step, const std::shared_ptr<const StepForm>& form);
  /// Tells the receivers of this rank's messages how many it has sent, and waits until the senders of its own say so.
  /// Throws ConfigError where these are fewer than it has taken.
  void confirm(const HostMessages& host);
  /// `peers` are the ranks that share a channel of the pipeline with this one. Throws ConfigError where there were more
  /// or fewer messages than in the first step of the form.
  void end(const HostMessages& host, const std::set<WorldRank>& peers);

  /// DataPlane::begin_capture() and so on: the messages between these are those of every repetition. Memory that was
  /// given before is not given in a capture.
  void begin_capture();
  void end_capture();
  void repeat_capture();

  /// Called for every message to `to` before it is sent. In `outline` tensors on the device "meta" stand for those that
  /// travel. Returns whether it is to be announced. Throws ConfigError where it is unlike the one remembered.
  bool announces(WorldRank to, const Tag& tag, const std::vector<Payload>& outline);
  /// Remembers a message that `from` has announced.
  void remember(WorldRank from, const Tag& tag, const std::vector<Payload>& outline);

  /// Whether the messages of `from` in the step of `tag` are known beforehand.
  bool are_known(WorldRank from, const Tag& tag) const;
  /// The ranks whose messages of the current step are.
  std::vector<WorldRank> known_senders() const;
  /// Those of them of which messages were taken since they last said what they have sent.
  std::vector<WorldRank> unconfirmed_senders() const;
  /// The next message of `from`, with its tag in the current step. Throws ConfigError where there was no further one.
  MessageOutline next(WorldRank from);
  void count_taken(WorldRank from) { ++current_->form_state.from.at(from).now.taken; }
  /// The next message of `from` for which memory is to be reserved; none where there is enough.
  std::optional<MessageOutline> next_to_reserve(WorldRank from);

  /// Memory for tensor number `payload` of a message as ReceiveMemory::tensor() gives it; none where the form assigns no
  /// buffer to it.
  std::optional<ReceiveMemory::Given> memory_of(Tag tag, std::size_t payload, const torch::Tensor& like,
                                                const c10::Stream& reader);

 private:
  /// Numbers of messages.
  struct Progress {
    std::size_t sent = 0;  // on the sender; the others on the receiver
    std::size_t received = 0;
    std::size_t taken = 0;
    std::size_t confirmed = 0;  // sent, as the sender has said
    std::size_t reserved = 0;
  };
  /// The messages of a form from one rank to another.
  struct PairMessages {
    StepMessages messages = {};
    bool are_known = false;  // both ranks have remembered them
    Progress now = {};       // in the current step
    Progress captured = {};  // at the end of a capture
  };
  struct FormState {
    bool is_new = true;  // its first step is not complete
    std::map<WorldRank, PairMessages> to = {}, from = {};
  };
  struct CurrentStep {
    StepKey key;
    std::shared_ptr<const StepForm> form;
    FormState& form_state;
  };
  struct Counts;

  template <class Work>
  void for_each_pair(const Work& work) {
    for (auto* pairs : {&current_->form_state.to, &current_->form_state.from})
      for (auto& [peer, pair] : *pairs) work(pair);
  }
  bool belongs(const Tag& tag) const { return current_ && current_->key == StepKey{tag.pipeline, tag.step}; }
  MessageOutline in_this_step(MessageOutline message) const;
  void compare_counts(const HostMessages& host, const std::set<WorldRank>& peers);
  void tell(WorldRank to, const Counts& counts, const HostMessages& host);
  Counts ask(WorldRank from, const std::string& waiting_for, const HostMessages& host);

  const WorldRank rank_;
  std::map<std::shared_ptr<const StepForm>, FormState> forms_;
  std::optional<CurrentStep> current_;
  std::map<WorldRank, std::uint64_t> told_, asked_;  // how often
};

}  // namespace penstock
