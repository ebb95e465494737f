// A message as one contiguous run of bytes, for transports that cannot hand a storage over.
//
//   offset 0     Envelope: format, number of payloads, tag, when it was sent; whether headers follow
//   then         per payload: a PayloadHeader, its sizes, its strides; nothing where both ends know the shape
//   then         per payload: its bytes, at a multiple of 64
//
// Both sides run the same build on the same kind of machine: numbers are written as they lie in memory.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "penstock/transport/known_shapes.h"
#include "penstock/transport/transport.h"
#include "penstock/transport/wire_buffer.h"

namespace penstock {

/// A message with its tag.
struct EncodedMessage {
  Tag tag;
  Message message;
};

/// What every transport does to a tensor before it leaves, so that a receiver computes on the same layout
/// (and the same alignment, which changes bits in BLAS) whatever carried it. The result is detached and dense.
/// A tensor that is dense in a permuted order keeps its strides; one with gaps or overlaps becomes contiguous;
/// a view that would keep a much larger storage alive, or does not begin at a multiple of 64 bytes, is copied.
/// Everything else keeps its storage. An undefined tensor stays undefined.
/// Throws TransportError for tensors that are not strided (sparse, quantized).
torch::Tensor prepare_for_send(const torch::Tensor& tensor);

/// `prepare_for_send` for every payload.
Message prepare_for_send(Message message);

/// How a message becomes bytes.
struct Encoding {
  std::shared_ptr<WireBufferPool> pool = nullptr;                 // where the bytes lie; null: memory of their own
  std::optional<std::vector<std::int64_t>> shape = std::nullopt;  // that the receiver knows too (KnownShapes)
};

/// Without headers where the receiver knows the shape of every tensor, all of one type, in the usual order in memory.
/// REQUIRES: the message has been prepared, and its tensors are on the CPU.
WireBuffer encode(const Tag& tag, const Message& message, const Encoding& encoding = {});

/// How many bytes of such a buffer tell types, sizes and strides.
std::size_t header_bytes(const Message& message, const Encoding& encoding);

/// The tensors share the buffer's bytes; it lives as long as one of them does. `known` are the shapes that this rank
/// knows. Throws TransportError when the buffer does not come from this build, or lacks a shape that is not known.
EncodedMessage decode(WireBuffer buffer, const KnownShapes* known = nullptr);

}  // namespace penstock
