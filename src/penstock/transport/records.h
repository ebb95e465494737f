// Contents of control messages: records of numbers, and text.
//
// A record is a plain struct of numbers. It travels as its bytes, because all processes run the same build on the same
// kind of machine (wire.h). One payload holds any number of records of one kind, or one text.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/transport/transport.h"

namespace penstock::transport {

/// A single number, or a struct of numbers whose `record_name` is its name in errors:
/// `static constexpr std::string_view record_name = "UpdateCounts";`.
template <class T>
concept Record = (std::is_arithmetic_v<T> && !std::same_as<T, bool>) ||
                 (std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T> && requires {
                   { T::record_name } -> std::convertible_to<std::string_view>;
                 });

template <Record T>
constexpr std::string_view name_of_record() {
  if constexpr (std::is_arithmetic_v<T>)
    return "number";
  else
    return T::record_name;
}

/// A payload with a copy of the `count` bytes at `bytes`.
inline Payload payload_of(const void* bytes, std::size_t count) {
  Payload payload{torch::empty({static_cast<std::int64_t>(count)}, torch::kUInt8)};
  if (count > 0) std::memcpy(payload.tensor.mutable_data_ptr(), bytes, count);
  return payload;
}

inline Payload payload_of(std::string_view text) { return payload_of(text.data(), text.size()); }

template <Record T>
Payload payload_of(const T& record) {
  return payload_of(&record, sizeof(T));
}

template <Record T>
Payload payload_of(const std::vector<T>& records) {
  return payload_of(records.data(), records.size() * sizeof(T));
}

/// A record, a vector of records, or text.
template <class T>
concept ControlContent = requires(const T& content) {
  payload_of(content);
};

/// A message with one payload for each of `contents`.
template <ControlContent... Contents>
Message message_of(const Contents&... contents) {
  return {{payload_of(contents)...}};
}

/// The bytes of payload number `index`, valid as long as the message. Throws InternalError where that holds neither
/// records nor text.
inline std::string_view bytes_in(const Message& message, std::size_t index) {
  require<InternalError>(index < message.payloads.size(), "a message of ", message.payloads.size(),
                         " payloads where payload ", index, " was expected: do all ranks run the same build?");
  const torch::Tensor& tensor = message.payloads[index].tensor;
  require<InternalError>(tensor.defined() && tensor.scalar_type() == torch::kUInt8 && tensor.dim() == 1,
                         "a payload without records or text, where one was expected: do all ranks run the same build?");
  return {static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

/// The text in payload number `index`. Throws as bytes_in().
inline std::string text_in(const Message& message, std::size_t index = 0) {
  return std::string(bytes_in(message, index));
}

/// The records in payload number `index`. Throws InternalError, with the name of the record, where the payload is not a
/// whole number of them, and as bytes_in().
template <Record T>
std::vector<T> records_in(const Message& message, std::size_t index = 0) {
  const std::string_view bytes = bytes_in(message, index);
  require<InternalError>(bytes.size() % sizeof(T) == 0, "records ", name_of_record<T>(), " of ", sizeof(T),
                         " bytes came as ", bytes.size(), " bytes: do all ranks run the same build?");
  std::vector<T> records(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(static_cast<void*>(records.data()), bytes.data(), bytes.size());
  return records;
}

/// The only record in payload number `index`. Throws InternalError, with the name of the record, where there is none or
/// more than one.
template <Record T>
T record_in(const Message& message, std::size_t index = 0) {
  const std::vector<T> records = records_in<T>(message, index);
  require<InternalError>(records.size() == 1, "one record ", name_of_record<T>(), " was expected, ", records.size(),
                         " came: do all ranks run the same build?");
  return records.front();
}

}  // namespace penstock::transport
