// Encodes a message as contiguous bytes, for transports between processes.
//
//   offset 0     Envelope: format, number of payloads, tag, time of sending; how its payloads are described
//   then         where the message describes itself: per payload a PayloadHeader, its sizes, its strides
//   then         per payload: its bytes, at a multiple of 64; nothing for a tensor on the device "meta"
//
// A message does not describe itself if its shape was declared (KnownShapes), or if its sender has described the same
// format before (message_formats.h).
//
// Numbers are written in native byte order, because all processes run the same build on the same kind of machine.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "penstock/transport/processes/message_formats.h"
#include "penstock/transport/processes/wire_buffer.h"
#include "penstock/transport/transport.h"

namespace penstock::processes {

/// The declared boundary shapes of one rank's pipelines. Thread-safe.
class KnownShapes {
 public:
  /// Declares the shape of every boundary value of `pipeline` and of its gradient.
  void declare(std::uint32_t pipeline, std::vector<std::int64_t> shape) {
    const std::lock_guard lock(mutex_);
    shapes_[pipeline] = std::move(shape);
  }

  /// The declared shape of the tensors of a message with `tag`, if any.
  std::optional<std::vector<std::int64_t>> of(const Tag& tag) const {
    if (tag.traffic != Traffic::forward && tag.traffic != Traffic::backward) return std::nullopt;
    const std::lock_guard lock(mutex_);
    const auto known = shapes_.find(tag.pipeline);
    if (known == shapes_.end()) return std::nullopt;
    return known->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint32_t, std::vector<std::int64_t>> shapes_;
};

/// Settings of encode().
struct Encoding {
  std::shared_ptr<WireBufferPool> pool = nullptr;                 // source of the buffer; null: newly allocated
  std::optional<std::vector<std::int64_t>> shape = std::nullopt;  // the declared shape of all tensors (KnownShapes)
  SentFormats* formats = nullptr;                                 // to the receiver; null: the message describes itself
};

/// What decode() knows beforehand.
struct Decoding {
  const KnownShapes* shapes = nullptr;       // declared on this rank
  const ReceivedFormats* formats = nullptr;  // of the sender
};

/// The bytes of a message; a tensor on the device "meta" travels as its shape, strides and type alone. The message does
/// not describe itself where all tensors have the declared shape, one type, and contiguous or channels-last strides;
/// otherwise where `formats` has a number for its format: what formats->take_new() returns then, the receiver must know
/// before the message. REQUIRES: the message has been prepared, and its other tensors are on the CPU.
WireBuffer encode(const Tag& tag, const Message& message, const Encoding& encoding = {});

/// The message in a buffer, with its tag. Its tensors share the buffer's memory, which lives as long as one of them
/// does. Throws TransportError when another build wrote the buffer, and for a description that `decoding` lacks.
std::pair<Tag, Message> decode(WireBuffer buffer, const Decoding& decoding = {});

}  // namespace penstock::processes
