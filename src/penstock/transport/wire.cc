#include "penstock/transport/wire.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include <torch/torch.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

constexpr std::uint64_t wire_format = 0x324B434F54534E50;  // "PNSTOCK2"

/// The common properties of all payloads of a message without headers.
struct Headless {
  bool is_headless = false;
  std::int8_t scalar_type = 0;
  bool requires_grad = false;
  bool channels_last = false;
  friend bool operator==(const Headless&, const Headless&) = default;
};

struct Envelope {
  std::uint64_t format = wire_format;
  std::int32_t payloads = 0;
  Headless headless;
  std::int64_t sent_ns = 0;
  Tag tag;
};

struct PayloadHeader {
  std::int64_t bytes = 0;
  std::int32_t dimensions = 0;
  std::int16_t scalar_type = 0;
  bool defined = false;
  bool requires_grad = false;
  bool is_meta = false;
};

static_assert(std::is_trivially_copyable_v<Envelope> && std::is_trivially_copyable_v<PayloadHeader>);

/// Reads a buffer from front to back.
class Cursor {
 public:
  explicit Cursor(const WireBuffer& buffer) : buffer_(buffer) {}

  std::byte* advance(std::size_t bytes) {
    require<TransportError>(bytes <= buffer_.size() - at_, "a message ends after ", buffer_.size(),
                            " bytes, before its contents do: do all ranks run the same build?");
    std::byte* here = buffer_.data() + at_;
    at_ += bytes;
    return here;
  }
  void pad() { at_ = std::min(WireBuffer::padded(at_), buffer_.size()); }

  template <class T>
  void write(const T* values, std::size_t count) {
    if (count > 0) std::memcpy(advance(count * sizeof(T)), values, count * sizeof(T));
  }
  template <class T>
  void read(T* values, std::size_t count) {
    if (count > 0) std::memcpy(values, advance(count * sizeof(T)), count * sizeof(T));
  }

 private:
  const WireBuffer& buffer_;
  std::size_t at_ = 0;
};

bool is_dense(const torch::Tensor& tensor) { return tensor.numel() == 0 || tensor.is_non_overlapping_and_dense(); }

/// Whether the tensor uses less than half of its storage, and a copy would free more than a page.
bool keeps_much_alive(const torch::Tensor& tensor) { return tensor.storage().nbytes() > 2 * tensor.nbytes() + 4096; }

bool is_aligned(const torch::Tensor& tensor) {
  return tensor.numel() == 0 || reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % WireBuffer::unit == 0;
}

std::vector<std::int64_t> strides_of(const Headless& headless, const std::vector<std::int64_t>& shape) {
  if (headless.channels_last) return at::get_channels_last_strides_2d(shape);
  const auto strides = c10::contiguous_strides(shape);
  return {strides.begin(), strides.end()};
}

/// The properties of a payload whose header can be omitted; a default value where it cannot.
Headless headless_of(const Payload& payload, const std::vector<std::int64_t>& shape) {
  const torch::Tensor& tensor = payload.tensor;
  if (!tensor.defined() || tensor.sizes() != at::IntArrayRef(shape)) return {};
  Headless headless{true, static_cast<std::int8_t>(tensor.scalar_type()), payload.requires_grad, false};
  if (tensor.strides() == at::IntArrayRef(strides_of(headless, shape))) return headless;
  headless.channels_last = shape.size() == 4;
  return headless.channels_last && tensor.strides() == at::IntArrayRef(strides_of(headless, shape)) ? headless
                                                                                                    : Headless{};
}

Headless headless_of(const Message& message, const Encoding& encoding) {
  if (!encoding.shape || message.payloads.empty()) return {};
  const Headless first = headless_of(message.payloads.front(), *encoding.shape);
  for (const Payload& payload : message.payloads)
    if (headless_of(payload, *encoding.shape) != first) return {};
  return first;
}

std::size_t buffer_bytes(const Message& message, bool is_headless) {
  std::size_t headers = 0, bodies = 0;
  for (const auto& [tensor, requires_grad] : message.payloads) {
    headers += sizeof(PayloadHeader);
    if (!tensor.defined()) continue;
    headers += 2 * sizeof(std::int64_t) * static_cast<std::size_t>(tensor.dim());
    if (!tensor.is_meta()) bodies += WireBuffer::padded(tensor.nbytes());
  }
  return WireBuffer::padded(sizeof(Envelope) + (is_headless ? 0 : headers)) + bodies;
}

}  // namespace

torch::Tensor prepare_for_send(const torch::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  require<TransportError>(tensor.layout() == torch::kStrided && !tensor.is_quantized(), "a ", tensor.toString(),
                          " cannot be sent between ranks: make it dense first");
  const torch::NoGradGuard no_grad;
  torch::Tensor sent = tensor.detach().resolve_conj().resolve_neg();
  if (!is_dense(sent)) return sent.contiguous();
  return keeps_much_alive(sent) || !is_aligned(sent) ? sent.clone() : sent;
}

Message prepare_for_send(Message message) {
  for (Payload& payload : message.payloads) payload.tensor = prepare_for_send(payload.tensor);
  return message;
}

WireBuffer encode(const Tag& tag, const Message& message, const Encoding& encoding) {
  Envelope envelope;
  envelope.payloads = static_cast<std::int32_t>(message.payloads.size());
  envelope.headless = headless_of(message, encoding);
  envelope.sent_ns = message.sent_ns;
  envelope.tag = tag;
  WireBuffer buffer(buffer_bytes(message, envelope.headless.is_headless), encoding.pool);
  Cursor cursor(buffer);
  cursor.write(&envelope, 1);
  for (const auto& [tensor, requires_grad] : message.payloads) {
    if (envelope.headless.is_headless) break;
    PayloadHeader head;
    head.requires_grad = requires_grad;
    head.defined = tensor.defined();
    if (head.defined) {
      head.is_meta = tensor.is_meta();
      head.bytes = head.is_meta ? 0 : static_cast<std::int64_t>(tensor.nbytes());
      head.dimensions = static_cast<std::int32_t>(tensor.dim());
      head.scalar_type = static_cast<std::int16_t>(tensor.scalar_type());
    }
    cursor.write(&head, 1);
    if (!head.defined) continue;
    cursor.write(tensor.sizes().data(), tensor.sizes().size());
    cursor.write(tensor.strides().data(), tensor.strides().size());
  }
  cursor.pad();
  for (const Payload& payload : message.payloads) {
    if (!payload.tensor.defined() || payload.tensor.is_meta()) continue;
    cursor.write(static_cast<const std::byte*>(payload.tensor.const_data_ptr()), payload.tensor.nbytes());
    cursor.pad();
  }
  return buffer;
}

std::pair<Tag, Message> decode(WireBuffer buffer, const KnownShapes* known) {
  const auto shared = std::make_shared<const WireBuffer>(std::move(buffer));
  Cursor cursor(*shared);
  Envelope envelope;
  cursor.read(&envelope, 1);
  require<TransportError>(envelope.format == wire_format, "a message is of format ", envelope.format,
                          ", this rank reads ", wire_format, ": do all ranks run the same build?");
  struct Head {
    PayloadHeader fixed;
    std::vector<std::int64_t> sizes, strides;
  };
  std::vector<Head> heads(static_cast<std::size_t>(envelope.payloads));
  const Headless& headless = envelope.headless;
  if (headless.is_headless) {
    const auto shape = known ? known->of(envelope.tag) : std::nullopt;
    require<TransportError>(shape.has_value(), "a message came without the shape of its tensors, which this rank does ",
                            "not know: declare one boundary shape on all ranks");
    const std::int64_t numbers = c10::multiply_integers(*shape);
    const auto type = static_cast<torch::ScalarType>(headless.scalar_type);
    const PayloadHeader fixed{numbers * static_cast<std::int64_t>(c10::elementSize(type)),
                              static_cast<std::int32_t>(shape->size()), headless.scalar_type, true,
                              headless.requires_grad};
    heads.assign(heads.size(), Head{fixed, *shape, strides_of(headless, *shape)});
  }
  for (Head& head : heads) {
    if (headless.is_headless) break;
    cursor.read(&head.fixed, 1);
    head.sizes.resize(static_cast<std::size_t>(head.fixed.dimensions));
    head.strides.resize(head.sizes.size());
    cursor.read(head.sizes.data(), head.sizes.size());
    cursor.read(head.strides.data(), head.strides.size());
  }
  cursor.pad();
  Message message;
  message.sent_ns = envelope.sent_ns;
  for (const Head& head : heads) {
    Payload payload{{}, head.fixed.requires_grad};
    const auto type = static_cast<torch::ScalarType>(head.fixed.scalar_type);
    if (head.fixed.is_meta) {
      payload.tensor = torch::empty_strided(head.sizes, head.strides, torch::TensorOptions(type).device(torch::kMeta));
    } else if (head.fixed.defined) {
      std::byte* bytes = cursor.advance(static_cast<std::size_t>(head.fixed.bytes));
      payload.tensor = torch::from_blob(
          bytes, head.sizes, head.strides, [shared](void*) {}, type);
      cursor.pad();
    }
    message.payloads.push_back(std::move(payload));
  }
  return {envelope.tag, std::move(message)};
}

}  // namespace penstock
