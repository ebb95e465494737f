#include "penstock/train/event_file.h"

#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <unistd.h>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"

namespace penstock {
namespace {

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0x82f63b78U : 0U);
    table[byte] = rest;
  }
  return table;
}

void put_little_endian(std::string& to, std::uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>(number >> (8 * i) & 0xff);
}

// The wire types of protocol buffers that events use.
enum class Wire : std::uint32_t { varint = 0, bits_64 = 1, bytes = 2, bits_32 = 5 };

void put_varint(std::string& to, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) to += static_cast<char>((number & 0x7f) | 0x80);
  to += static_cast<char>(number);
}

void put_key(std::string& to, std::uint32_t field, Wire wire) {
  put_varint(to, field << 3 | static_cast<std::uint32_t>(wire));
}

void put_bytes(std::string& to, std::uint32_t field, std::string_view bytes) {
  put_key(to, field, Wire::bytes);
  put_varint(to, bytes.size());
  to += bytes;
}

// Field numbers of TensorBoard's messages Event, Summary and Summary.Value.
constexpr std::uint32_t event_wall_time = 1, event_step = 2, event_file_version = 3, event_summary = 5;
constexpr std::uint32_t summary_value = 1, value_tag = 1, value_number = 2;

std::string event_at(double wall_time_s) {
  std::string event;
  put_key(event, event_wall_time, Wire::bits_64);
  put_little_endian(event, std::bit_cast<std::uint64_t>(wall_time_s), 8);
  return event;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "localhost";
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> table = crc_table();
  std::uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

std::string event_record(std::string_view event) {
  std::string record;
  put_little_endian(record, event.size(), 8);
  put_little_endian(record, masked_crc32c(record), 4);
  record += event;
  put_little_endian(record, masked_crc32c(event), 4);
  return record;
}

std::string scalar_event(double wall_time_s, std::int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(value, value_tag, tag);
    put_key(value, value_number, Wire::bits_32);
    put_little_endian(value, std::bit_cast<std::uint32_t>(static_cast<float>(number)), 4);
    put_bytes(summary, summary_value, value);
  }
  std::string event = event_at(wall_time_s);
  put_key(event, event_step, Wire::varint);
  put_varint(event, static_cast<std::uint64_t>(step));
  put_bytes(event, event_summary, summary);
  return event;
}

EventFile::EventFile(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const double now = calendar_s();
  // The naming scheme of TensorBoard's own writers: readers process the files of a directory in the order of their
  // names.
  path_ = say(directory, "/events.out.tfevents.", static_cast<std::int64_t>(now), ".", host_name(), ".", getpid());
  out_.open(path_, std::ios::binary | std::ios::trunc);
  require<ConfigError>(out_.is_open(), "the event file ", path_, " cannot be made",
                       error ? " (" + error.message() + ")" : std::string(),
                       ": pass a directory that can be written to");
  std::string version = event_at(now);
  put_bytes(version, event_file_version, "brain.Event:2");
  write(version);
}

void EventFile::add(std::int64_t step, const std::vector<Scalar>& scalars) {
  write(scalar_event(calendar_s(), step, scalars));
}

void EventFile::write(std::string_view event) {
  out_ << event_record(event) << std::flush;
  require<Failure>(out_.good(), "the event file ", path_, " could not be written: ", std::strerror(errno));
}

}  // namespace penstock
