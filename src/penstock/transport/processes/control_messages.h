// The control messages between the progress threads of two processes, and their encoding. Torch-free.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "penstock/base/error.h"
#include "penstock/transport/processes/wire_buffer.h"
#include "penstock/transport/tag.h"

namespace penstock::processes::control_messages {

/// The kind of a buffer of BufferNetwork.
enum MessageKind { kind_message = 1, kind_format, kind_question, kind_answer, kind_abort, kind_cancel };

struct Question {
  std::uint64_t inquiry = 0;
};

/// The sender's status. Times are sent as ages, because clocks of two hosts cannot be compared.
struct Answer {
  std::uint64_t inquiry = 0;
  Position position;
  std::int64_t since_age_ns = 0;
  std::int64_t moved_age_ns = 0;
  std::int32_t waits_for = -1;
};

template <class T>
WireBuffer buffer_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  WireBuffer buffer(sizeof(T));
  std::memcpy(buffer.data(), &value, sizeof(T));
  return buffer;
}

template <class T>
T value_of(const WireBuffer& buffer) {
  require<TransportError>(buffer.size() >= sizeof(T), "a buffer of ", buffer.size(), " bytes where ", sizeof(T),
                          " were expected: do all ranks run the same build?");
  T value;
  std::memcpy(&value, buffer.data(), sizeof(T));
  return value;
}

/// Text ends with a zero.
inline WireBuffer buffer_of(const std::string& text) {
  WireBuffer buffer(text.size() + 1);
  std::memcpy(buffer.data(), text.c_str(), text.size() + 1);
  return buffer;
}

/// A value, then text.
template <class T>
WireBuffer buffer_of(const T& value, const std::string& text) {
  static_assert(std::is_trivially_copyable_v<T>);
  WireBuffer buffer(sizeof(T) + text.size() + 1);
  std::memcpy(buffer.data(), &value, sizeof(T));
  std::memcpy(buffer.data() + sizeof(T), text.c_str(), text.size() + 1);
  return buffer;
}

/// What follows the value in such a buffer: the text, its zero, and further ones.
template <class T>
std::string_view bytes_behind(const WireBuffer& buffer) {
  value_of<T>(buffer);  // it has as many bytes
  return {reinterpret_cast<const char*>(buffer.data()) + sizeof(T), buffer.size() - sizeof(T)};
}

}  // namespace penstock::processes::control_messages
