#include "penstock/text/token_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test::token_file_test {
namespace {

using Ids = std::vector<std::int64_t>;

class TokenFiles : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
  std::string message(const std::string& content, const std::string& name = "a.tokens") const {
    return error_text<DataError>([&] { TokenFile::open(write(name, content)); });
  }
  /// The bytes of a file of two documents, one of them with flags.
  std::string small_file() const {
    TokenFileWriter writer(folder_ / "small", 100);
    writer.add_document(Ids{1, 2, 3});
    writer.add_document(Ids{98, 99}, {false, true});
    writer.finish();
    return bytes_of_file(folder_ / "small");
  }
  const TemporaryFolder folder_{"token_file"};
};

Ids tokens_of(const TokenFile& file) {
  Ids ids;
  for (std::int64_t at = 0; at < file.size(); ++at) ids.push_back(file.token(at));
  return ids;
}

TEST_F(TokenFiles, are_read_as_they_were_written) {
  for (const std::int64_t vocabulary : {65'536, 65'537}) {
    TokenFileWriter writer(folder_ / "written", vocabulary);
    writer.add_document(Ids{7, 65'535});
    writer.add_document({});
    writer.add_document(Ids{1, 2, 3}, {true, false, true});
    writer.add_document(Ids{4});
    writer.finish();
    EXPECT_EQ(writer.learned(), 5);
    EXPECT_EQ(writer.width(), vocabulary == 65'536 ? 2 : 4);
    const auto file = TokenFile::open(folder_ / "written");
    EXPECT_EQ(tokens_of(*file), Ids({7, 65'535, 1, 2, 3, 4}));
    EXPECT_EQ(file->vocabulary(), vocabulary);
    EXPECT_EQ(file->documents(), 4);
    EXPECT_EQ(file->document_end(2), 5);
    Ids documents, learned;
    for (std::int64_t at = 0; at < file->size(); ++at) {
      documents.push_back(file->document_of(at));
      learned.push_back(file->is_learned(at) ? 1 : 0);
    }
    EXPECT_EQ(documents, Ids({0, 0, 2, 2, 2, 3}));
    EXPECT_EQ(learned, Ids({1, 1, 1, 0, 1, 1}));
  }
}

TEST_F(TokenFiles, leave_nothing_if_they_are_not_finished) {
  {
    TokenFileWriter writer(folder_ / "unfinished", 10);
    writer.add_document(Ids{1});
    EXPECT_TRUE(says(error_text<DataError>([&] {
                       writer.add_document(Ids{1, 10});
                     }),
                     "token 10 of document 1", "of 10"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.string()));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { TokenFileWriter(folder_ / "none/file", 10); }), "cannot be written"));
}

TEST_F(TokenFiles, of_other_programs_are_read) {
  const std::string tokens("\x01\x00\xff\xff", 4);
  const auto header = [](std::int32_t magic, std::int32_t version, std::int32_t count) {
    std::string bytes(1024, '\0');
    const std::int32_t numbers[] = {magic, version, count};
    return bytes.replace(0, sizeof numbers, reinterpret_cast<const char*>(numbers), sizeof numbers);
  };
  EXPECT_EQ(tokens_of(*TokenFile::open(write("nano.bin", tokens))), Ids({1, 65'535}));
  EXPECT_EQ(tokens_of(*TokenFile::open(write("gpt2.bin", header(20240520, 1, 2) + tokens))), Ids({1, 65'535}));
  EXPECT_EQ(tokens_of(*TokenFile::open(write("llama3", header(20240801, 7, 1) + tokens))), Ids({0xffff0001}));
  EXPECT_EQ(TokenFile::open(folder_ / "gpt2.bin")->documents(), 0);
  EXPECT_TRUE(says(message(header(20240520, 2, 2) + tokens), "of version 2", "1 can be read"));
  EXPECT_TRUE(says(message(header(20240520, 1, 3) + tokens), "3 tokens has 1030 bytes", "has 1028"));
  EXPECT_TRUE(says(message("abc", "odd.bin"), "has 3 bytes"));
}

TEST_F(TokenFiles, are_refused_if_they_are_damaged) {
  const std::string good = small_file();
  const auto changed = [&](std::size_t at, char byte) {
    std::string bytes = good;
    bytes[at] = byte;
    return message(bytes);
  };
  EXPECT_EQ(message(good), "[no error]");
  EXPECT_TRUE(says(message("some text"), "is not a token file", "penstock tokenize"));
  EXPECT_TRUE(says(message(""), "is empty"));
  EXPECT_TRUE(says(message(good.substr(0, 40)), "has 64 bytes", "has 40"));
  EXPECT_TRUE(says(message(good.substr(0, good.size() - 1)), "5 tokens in 2 documents need 101 bytes", "has 100"));
  EXPECT_TRUE(says(changed(8, 2), "version 2"));
  EXPECT_TRUE(says(changed(12, 3), "tokens of 3 bytes"));
  EXPECT_TRUE(says(changed(23, 127), "do not fit"));
  EXPECT_TRUE(says(changed(40, 9), "9 for flags"));
  EXPECT_TRUE(says(changed(80, 6), "document 0 ends after 6 tokens"));
  EXPECT_TRUE(says(changed(88, 4), "the documents end after 4 tokens of 5"));
  EXPECT_TRUE(says(error_text<DataError>([&] { TokenFile::open(folder_ / "none"); }), "none: cannot be read"));
}

TEST_F(TokenFiles, name_the_position_of_a_token_out_of_range) {
  small_file();
  const auto file = TokenFile::open(folder_ / "small");
  EXPECT_NO_THROW(file->require_tokens_below(100));
  EXPECT_TRUE(
      says(error_text<DataError>([&] { file->require_tokens_below(99); }), "small: token 4 is 99", "99 entries"));
}

}  // namespace
}  // namespace penstock::test::token_file_test
