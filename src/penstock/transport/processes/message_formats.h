// The formats of messages between two processes: the types, shapes and strides of their tensors. A pipeline sends
// messages of a few formats again and again, so that each is described once. Torch-free.
//
//   message            0F0        0F1        0F2 (the last, smaller micro-batch)    0F0 of the next step
//   sent before it     format 0   -          format 1                               -
//   it names           0          0          1                                      0
//
// Formats are numbered in the order in which they are sent, which is the order in which they arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/transport/tag.h"

namespace penstock::processes {

/// Whether messages of this kind are sent again and again in the same formats. Those of control messages change with
/// the texts that they contain.
constexpr bool has_recurring_formats(const Tag& tag) {
  const bool is_control = tag.traffic == Traffic::control || tag.traffic == Traffic::background;
  return !is_control || tag.topic == Topic::announcement;
}

/// The formats that one process has described to another one. A format is what encode() writes of a message before its
/// numbers. Not thread-safe.
class SentFormats {
 public:
  /// A message of a further format, or of one that is longer, describes itself. Both bound the memory of the two
  /// processes; a format must also arrive before what is sent after it (BufferNetwork::longest_in_order).
  static constexpr std::size_t most = 256, longest_bytes = 2048;

  /// The number of a format; none where messages of this format describe themselves. Where it is new, take_new()
  /// returns it.
  std::optional<std::int32_t> number_of(std::string_view format) {
    if (const auto known = numbers_.find(format); known != numbers_.end()) return known->second;
    ++descriptions_;
    if (numbers_.size() == most || format.size() > longest_bytes) return std::nullopt;
    const auto number = static_cast<std::int32_t>(numbers_.size());
    numbers_.emplace(format, number);
    new_ = Numbered{number, std::string(format)};
    return number;
  }

  struct Numbered {
    std::int32_t number = 0;
    std::string format;
  };
  /// The format that number_of() has numbered since the last call: to be sent before the message.
  std::optional<Numbered> take_new() { return std::exchange(new_, std::nullopt); }

  /// How many messages had no known format.
  std::uint64_t descriptions() const { return descriptions_; }

 private:
  std::map<std::string, std::int32_t, std::less<>> numbers_;
  std::optional<Numbered> new_;
  std::uint64_t descriptions_ = 0;
};

/// The formats that another process has described to this one. Not thread-safe.
class ReceivedFormats {
 public:
  /// The next format, which may be followed by other bytes. Throws TransportError where one before it has not come.
  void add(std::int32_t number, std::string format) {
    require<TransportError>(number >= 0 && static_cast<std::size_t>(number) == formats_.size(), "format ", number,
                            " of messages came after ", formats_.size(), " others: one has been lost");
    formats_.push_back(std::move(format));
  }

  /// Throws TransportError for one that has not come. Valid as long as this object.
  std::string_view at(std::int32_t number) const {
    require<TransportError>(number >= 0 && static_cast<std::size_t>(number) < formats_.size(),
                            "a message is of format ", number, " of its sender, which has described ", formats_.size(),
                            " to this rank: do all ranks run the same build?");
    return formats_[static_cast<std::size_t>(number)];
  }

 private:
  std::deque<std::string> formats_;
};

}  // namespace penstock::processes
