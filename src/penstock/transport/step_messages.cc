#include "penstock/transport/step_messages.h"

#include <algorithm>
#include <utility>

#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/transport/device_hand_over.h"

namespace penstock {
namespace {

bool are_alike(const Payload& one, const Payload& other) {
  if (one.requires_grad != other.requires_grad || one.tensor.defined() != other.tensor.defined()) return false;
  if (!one.tensor.defined()) return true;
  return one.tensor.dtype() == other.tensor.dtype() && one.tensor.sizes() == other.tensor.sizes() &&
         one.tensor.strides() == other.tensor.strides();
}

bool are_alike(const MessageOutline& one, const MessageOutline& other) {
  return one.tag == other.tag &&
         std::equal(one.payloads.begin(), one.payloads.end(), other.payloads.begin(), other.payloads.end(),
                    [](const Payload& a, const Payload& b) { return are_alike(a, b); });
}

/// "0SEND_F1 of float [3, 6] with strides [6, 1] and nothing".
std::string text_of(const MessageOutline& message) {
  std::string text = sending_position(message.tag).instruction;
  if (text.empty()) text = "a message that belongs to no micro-batch";
  const char* separator = " of ";
  for (const auto& [tensor, requires_grad] : message.payloads) {
    text += std::exchange(separator, " and ");
    if (!tensor.defined()) {
      text += "nothing";
      continue;
    }
    text += say(tensor.dtype().name(), " ", tensor.sizes());
    if (!tensor.is_contiguous()) text += say(" with strides ", tensor.strides());
    if (requires_grad) text += " that needs a gradient";
  }
  return message.is_on_devices ? text : text + ", in part on the CPU";
}

}  // namespace

MessageOutline MessageOutline::of(Tag tag, std::vector<Payload> payloads) {
  tag.step = 0;
  MessageOutline outline{tag, std::move(payloads)};
  for (auto& [tensor, requires_grad] : outline.payloads) {
    if (!tensor.defined() || tensor.is_meta()) continue;
    outline.is_on_devices = false;
    tensor = empty_on(torch::kMeta, tensor);
  }
  return outline;
}

void StepMessages::require_same(std::size_t number, const MessageOutline& message, const std::string& form) const {
  require<ConfigError>(number < messages_.size(), text_of(message), " comes after all ", messages_.size(),
                       " messages of the first step of ", form, advice);
  require<ConfigError>(are_alike(messages_[number], message), text_of(message), " comes instead of ",
                       text_of(messages_[number]), ", as in the first step of ", form, advice);
}

void StepMessages::require_count(std::size_t count, const RankPair& ranks, const std::string& form) const {
  require<ConfigError>(count == messages_.size(), "rank ", ranks.from.value(), " has sent ", count,
                       " messages to rank ", ranks.to.value(), " instead of ", messages_.size(),
                       ", as in the first step of ", form, advice);
}

}  // namespace penstock
