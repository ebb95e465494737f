// Event files, compared with published values of the format and read by a minimal reader.
#include "penstock/train/event_file.h"

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::test::event_file_test {
namespace {

TEST(EventFile, checksums_are_those_of_the_standard) {
  const auto crc = [](std::string_view bytes) {
    const std::uint32_t masked = masked_crc32c(bytes) - 0xa282ead8U;
    return masked >> 17 | masked << 15;
  };
  EXPECT_EQ(crc("123456789"), 0xe3069283U);  // RFC 3720, B.4, like the next two
  EXPECT_EQ(crc(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc(std::string(32, '\xff')), 0x62a8ab43U);
}

TEST(EventFile, encodes_an_event_as_a_protocol_buffer) {
  const std::string event = scalar_event(1.0, 300, {{"a", 0.5}});
  const unsigned char expected[] = {0x09, 0,    0,    0,    0, 0, 0, 0xf0, 0x3f,  // wall_time: 1.0
                                    0x10, 0xac, 0x02,                             // step: 300
                                    0x2a, 0x0a, 0x0a, 0x08,                       // summary of a value of 8 bytes
                                    0x0a, 0x01, 'a',  0x15, 0, 0, 0, 0x3f};       // the value's tag and number
  EXPECT_EQ(event, std::string(reinterpret_cast<const char*>(expected), sizeof(expected)));
  const std::string record = event_record(event);
  EXPECT_EQ(record.size(), 8 + 4 + event.size() + 4);
  EXPECT_EQ(static_cast<unsigned char>(record[0]), event.size());
  EXPECT_EQ(record.substr(12, event.size()), event);
}

TEST(EventFile, makes_the_directory_and_flushes_every_event) {
  const std::string directory = testing::TempDir() + "event_file_test/run";
  std::filesystem::remove_all(directory);
  EventFile file(directory);
  const auto size = [&] { return std::filesystem::file_size(file.path()); };
  const auto at_first = size();
  EXPECT_GT(at_first, 0u);
  file.add(1, {{"train/loss", 2}});
  EXPECT_EQ(size(), at_first + event_record(scalar_event(0, 1, {{"train/loss", 2}})).size());
  EXPECT_NE(file.path().find("/events.out.tfevents."), std::string::npos);
}

TEST(EventFile, refuses_a_directory_that_cannot_be_written) {
  const std::string file = testing::TempDir() + "event_file_test_plain";
  std::ofstream(file) << "here";
  EXPECT_TRUE(says(error_text<ConfigError>([&] { EventFile made(file + "/run"); }), file, "cannot be made"));
}

}  // namespace
}  // namespace penstock::test::event_file_test
