// The messages of a static step from one rank to another, as they were in the first step of its form (data_plane.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/transport/data_plane.h"

namespace penstock {

/// A message without its numbers: its tensors are on the device "meta".
struct MessageOutline {
  Tag tag;  // in StepMessages with step 0
  std::vector<Payload> payloads;
  bool is_on_devices = true;  // none of its tensors is on the CPU, so that all numbers travel

  /// Of a message with `tag` and `payloads`, of which those that travel are on the device "meta" already.
  static MessageOutline of(Tag tag, std::vector<Payload> payloads);
};

/// In the order of sending. Not thread-safe.
class StepMessages {
 public:
  void add(MessageOutline message) { messages_.push_back(std::move(message)); }

  std::size_t size() const { return messages_.size(); }
  const MessageOutline& operator[](std::size_t number) const { return messages_[number]; }
  /// The end of each error message.
  static constexpr std::string_view advice =
      ": leave out static_shapes (--static-shapes) where equal batches exchange different tensors";
  /// Throws ConfigError unless `message` is like that with `number`. `form` names the steps.
  void require_same(std::size_t number, const MessageOutline& message, const std::string& form) const;
  /// Throws ConfigError unless `count`, of the messages between `ranks`, is that of the first step.
  void require_count(std::size_t count, const RankPair& ranks, const std::string& form) const;

 private:
  std::vector<MessageOutline> messages_;
};

}  // namespace penstock
