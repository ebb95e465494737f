#include "penstock/transport/processes/wire.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <torch/torch.h>

#include "penstock/base/error.h"

namespace penstock::processes {
namespace {

constexpr std::uint64_t wire_format = 0x334B434F54534E50;  // "PNSTOCK3"

/// The common properties of all payloads of a message whose shape was declared.
struct Headless {
  bool is_headless = false;
  std::int8_t scalar_type = 0;
  bool requires_grad = false;
  bool channels_last = false;
  friend bool operator==(const Headless&, const Headless&) = default;
};

constexpr std::int32_t no_format = -1;

struct Envelope {
  std::uint64_t format = wire_format;
  std::int32_t payloads = 0;
  Headless headless;
  std::int64_t sent_ns = 0;
  Tag tag;
  std::int32_t format_number = no_format;  // in SentFormats
  std::uint32_t units = 0;                 // of the message; it may be received into a larger buffer
};

// Without padding, because equal formats have equal bytes.
struct PayloadHeader {
  std::int64_t bytes = 0;
  std::int32_t dimensions = 0;
  std::int8_t scalar_type = 0;
  bool defined = false;
  bool requires_grad = false;
  bool is_meta = false;
};

static_assert(WireBuffer::unit % tensor_alignment == 0);
static_assert(std::is_trivially_copyable_v<Envelope> && sizeof(Envelope) == WireBuffer::unit);
static_assert(std::has_unique_object_representations_v<PayloadHeader>);

/// What a message says about one payload.
struct Head {
  PayloadHeader fixed;
  std::vector<std::int64_t> sizes, strides;
};

/// Reads bytes from front to back.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  /// The position of the next `bytes` bytes, which it goes beyond.
  std::size_t advance(std::size_t bytes) {
    require<TransportError>(bytes <= bytes_.size() - at_, "a message ends after ", bytes_.size(),
                            " bytes, before its contents do: do all ranks run the same build?");
    return std::exchange(at_, at_ + bytes);
  }
  std::size_t at() const { return at_; }
  void pad() { at_ = std::min(WireBuffer::padded(at_), bytes_.size()); }

  template <class T>
  void read(T* values, std::size_t count) {
    if (count > 0) std::memcpy(values, bytes_.data() + advance(count * sizeof(T)), count * sizeof(T));
  }

 private:
  const std::string_view bytes_;
  std::size_t at_ = 0;
};

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

template <class T>
void append(std::string& bytes, const T* values, std::size_t count) {
  if (count > 0) bytes.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

/// How a message describes itself: its format.
std::string description_of(const Message& message) {
  std::string bytes;
  for (const auto& [tensor, requires_grad, is_kept] : message.payloads) {
    PayloadHeader head;
    head.requires_grad = requires_grad;
    head.defined = tensor.defined();
    if (head.defined) {
      head.is_meta = tensor.is_meta();
      head.bytes = head.is_meta ? 0 : static_cast<std::int64_t>(tensor.nbytes());
      head.dimensions = static_cast<std::int32_t>(tensor.dim());
      head.scalar_type = static_cast<std::int8_t>(tensor.scalar_type());
    }
    append(bytes, &head, 1);
    if (!head.defined) continue;
    append(bytes, tensor.sizes().data(), tensor.sizes().size());
    append(bytes, tensor.strides().data(), tensor.strides().size());
  }
  return bytes;
}

std::vector<Head> read_description(Reader& reader, std::size_t payloads) {
  std::vector<Head> heads(payloads);
  for (Head& head : heads) {
    reader.read(&head.fixed, 1);
    head.sizes.resize(static_cast<std::size_t>(head.fixed.dimensions));
    head.strides.resize(head.sizes.size());
    reader.read(head.sizes.data(), head.sizes.size());
    reader.read(head.strides.data(), head.strides.size());
  }
  return heads;
}

Head declared_head(const Envelope& envelope, const KnownShapes* shapes) {
  const auto shape = shapes ? shapes->of(envelope.tag) : std::nullopt;
  require<TransportError>(shape.has_value(), "a message came without the shape of its tensors, which this rank does ",
                          "not know: declare one boundary shape on all ranks");
  const Headless& headless = envelope.headless;
  const std::int64_t numbers = c10::multiply_integers(*shape);
  const auto type = static_cast<torch::ScalarType>(headless.scalar_type);
  const PayloadHeader fixed{numbers * static_cast<std::int64_t>(c10::elementSize(type)),
                            static_cast<std::int32_t>(shape->size()), headless.scalar_type, true,
                            headless.requires_grad};
  return {fixed, *shape, strides_of(headless, *shape)};
}

/// The descriptions of all payloads, wherever they are.
std::vector<Head> heads_of(const Envelope& envelope, Reader& reader, const Decoding& decoding) {
  const auto payloads = static_cast<std::size_t>(envelope.payloads);
  if (envelope.headless.is_headless) return std::vector<Head>(payloads, declared_head(envelope, decoding.shapes));
  if (envelope.format_number == no_format) return read_description(reader, payloads);
  require<TransportError>(decoding.formats != nullptr, "a message is of format ", envelope.format_number,
                          " of its sender, which this rank does not know: do all ranks run the same build?");
  Reader format(decoding.formats->at(envelope.format_number));
  return read_description(format, payloads);
}

std::size_t body_bytes(const Message& message) {
  std::size_t bytes = 0;
  for (const Payload& payload : message.payloads)
    if (payload.tensor.defined() && !payload.tensor.is_meta()) bytes += WireBuffer::padded(payload.tensor.nbytes());
  return bytes;
}

}  // namespace

WireBuffer encode(const Tag& tag, const Message& message, const Encoding& encoding) {
  Envelope envelope;
  envelope.payloads = static_cast<std::int32_t>(message.payloads.size());
  envelope.headless = headless_of(message, encoding);
  envelope.sent_ns = message.sent_ns;
  envelope.tag = tag;
  std::string description = envelope.headless.is_headless ? "" : description_of(message);
  if (encoding.formats && !description.empty())
    if (const auto number = encoding.formats->number_of(description)) {
      envelope.format_number = *number;
      description.clear();
    }
  const std::size_t head_bytes = WireBuffer::padded(sizeof(envelope) + description.size());
  WireBuffer buffer(head_bytes + body_bytes(message), encoding.pool);
  envelope.units = static_cast<std::uint32_t>(buffer.size() / WireBuffer::unit);
  std::byte* at = buffer.data();
  std::memcpy(at, &envelope, sizeof(envelope));
  if (!description.empty()) std::memcpy(at + sizeof(envelope), description.data(), description.size());
  at += head_bytes;
  for (const Payload& payload : message.payloads) {
    if (!payload.tensor.defined() || payload.tensor.is_meta() || payload.tensor.nbytes() == 0) continue;
    std::memcpy(at, payload.tensor.const_data_ptr(), payload.tensor.nbytes());
    at += WireBuffer::padded(payload.tensor.nbytes());
  }
  return buffer;
}

std::pair<Tag, Message> decode(WireBuffer buffer, const Decoding& decoding) {
  const auto shared = std::make_shared<const WireBuffer>(std::move(buffer));
  Reader reader({reinterpret_cast<const char*>(shared->data()), shared->size()});
  Envelope envelope;
  reader.read(&envelope, 1);
  require<TransportError>(envelope.format == wire_format, "a message is of format ", envelope.format,
                          ", this rank reads ", wire_format, ": do all ranks run the same build?");
  const std::vector<Head> heads = heads_of(envelope, reader, decoding);
  reader.pad();
  Message message;
  message.sent_ns = envelope.sent_ns;
  for (const Head& head : heads) {
    Payload payload{{}, head.fixed.requires_grad};
    const auto type = static_cast<torch::ScalarType>(head.fixed.scalar_type);
    if (head.fixed.is_meta) {
      payload.tensor = torch::empty_strided(head.sizes, head.strides, torch::TensorOptions(type).device(torch::kMeta));
    } else if (head.fixed.defined) {
      std::byte* bytes = shared->data() + reader.advance(static_cast<std::size_t>(head.fixed.bytes));
      payload.tensor = torch::from_blob(
          bytes, head.sizes, head.strides, [shared](void*) {}, type);
      reader.pad();
    }
    message.payloads.push_back(std::move(payload));
  }
  require<TransportError>(reader.at() == envelope.units * WireBuffer::unit, "a message of ",
                          envelope.units * WireBuffer::unit, " bytes is described as one of ", reader.at(),
                          ": do all ranks run the same build?");
  return {envelope.tag, std::move(message)};
}

}  // namespace penstock::processes
