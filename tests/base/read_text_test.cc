#include "penstock/base/text.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/base/error_text.h"

namespace penstock::test::read_text_test {
namespace {

namespace fs = std::filesystem;

class ReadText : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  static std::string refusal(const std::string& path, const TextLimits& limits = {}) {
    return error_text<DataError>([&] { read_text(path, limits); });
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / ("read_text_" + std::to_string(::getpid()));
};

TEST_F(ReadText, reads_every_byte) {
  for (const std::string& text : {std::string(), std::string("a\0b\r\n", 5), std::string(200'000, 'x')})
    EXPECT_EQ(read_text(write("a", text)), text);
  EXPECT_EQ(read_text(write("a", "12345"), {.most_bytes = 5}), "12345");
}

TEST_F(ReadText, refuses_what_is_too_large_before_it_is_read) {
  const std::string path = write("a", "123456");
  EXPECT_EQ(refusal(path, {.most_bytes = 5}), path + ": has 6 bytes: more than the 5 that are accepted");
  fs::resize_file(path, std::uintmax_t{1} << 40);  // sparse: costs no disk
  EXPECT_EQ(refusal(path), path + ": has 1099511627776 bytes: more than the 67108864 that are accepted");
  EXPECT_EQ(refusal("/dev/zero", {.most_bytes = 100'000}),
            "/dev/zero: has more than the 100000 bytes that are accepted");
}

TEST_F(ReadText, reads_a_pipe) {
  const std::string path = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "through a pipe"; });
  EXPECT_EQ(read_text(path), "through a pipe");
  writer.join();
}

TEST_F(ReadText, names_what_cannot_be_read) {
  const std::string folder = folder_.string(), absent = folder + "/absent";
  EXPECT_EQ(refusal(absent), absent + ": cannot be opened: No such file or directory");
  EXPECT_EQ(refusal(folder), folder + ": is a folder, and a file is expected there");
  for (const std::string& path : {absent, folder})
    EXPECT_EQ(refusal(path, {.expected = "a schedule file"}),
              path + ": cannot be opened; a schedule file is expected there");
}

TEST_F(ReadText, the_name_precedes_errors_of_the_format) {
  const std::string path = write("a", "text");
  EXPECT_EQ(read_file(path, [](const std::string& text) { return text.size(); }), 4u);
  const auto refuse = [](const std::string&) -> int { throw DataError("no number"); };
  EXPECT_EQ(error_text<DataError>([&] { read_file(path, refuse); }), path + ": no number");
}

}  // namespace
}  // namespace penstock::test::read_text_test
