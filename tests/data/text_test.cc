#include "penstock/data/text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test::text_test {
namespace {

namespace fs = std::filesystem;

class TextFile : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_ / "text"); }
  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  const TemporaryFolder files_{"text"};
  const fs::path folder_ = files_.string();
};

TEST(Vocabulary, contains_the_bytes_of_the_text_in_order) {
  const Vocabulary vocabulary = Vocabulary::of("hello\n\xff");
  EXPECT_EQ(vocabulary.bytes(), "\nehlo\xff");
  EXPECT_EQ(vocabulary.encode("hole\xff"), (std::vector<std::int64_t>{2, 4, 3, 1, 5}));
  EXPECT_EQ(vocabulary.decode(vocabulary.encode("hello\n")), "hello\n");
  EXPECT_EQ(Vocabulary::of(vocabulary.bytes()).encode("\nhell"), vocabulary.encode("\nhell"));
  EXPECT_EQ(error_text<DataError>([&] { vocabulary.encode("help"); }),
            "the text has 'p', which is not among the 6 characters of the model's vocabulary");
  EXPECT_TRUE(says(error_text<DataError>([&] { vocabulary.encode("\t"); }), "byte 9"));
  EXPECT_TRUE(says(error_text<DataError>([] { Vocabulary().encode("x"); }), "the 0 characters"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { vocabulary.decode({6}); }), "token 6 of a vocabulary of 6"));
}

TEST_F(TextFile, is_found_by_file_or_folder_and_split) {
  const std::string text = "the quick brown fox jumps over the lazy dog, and so on";
  const fs::path file = write("text/some.txt", text);
  for (const fs::path& path : {file, folder_ / "text", folder_}) {
    const TextSet set = load_text(path.string());
    EXPECT_EQ(set.train.size(0), 49);
    EXPECT_EQ(set.validation.size(0), 5);
    const torch::Tensor whole = torch::cat({set.train, set.validation});
    const std::vector<std::int64_t> tokens(whole.data_ptr<std::int64_t>(), whole.data_ptr<std::int64_t>() + 54);
    EXPECT_EQ(set.vocabulary.decode(tokens), text);
  }
  write("text/other.txt", text);
  EXPECT_TRUE(says(error_text<DataError>([&] { load_text(folder_.string()); }), "no text in", "single .txt file"));
  write("text/tinyshakespeare.txt", text);
  EXPECT_EQ(load_text(folder_.string()).train.size(0), 49);
  write("text/tinyshakespeare.txt", "too short");
  EXPECT_TRUE(says(error_text<DataError>([&] { load_text(folder_.string()); }), "has 9 bytes"));
  EXPECT_TRUE(says(error_text<DataError>([&] { load_text("/nowhere"); }), "no text in '/nowhere'"));
}

torch::Tensor count_to(std::int64_t n) { return torch::arange(n); }

Batch make(const SampleSource& source, std::vector<std::int64_t> samples, std::uint64_t epoch = 0,
           std::optional<RowRange> inputs = {}) {
  const RowRange all{0, static_cast<std::int64_t>(samples.size())};
  return source.make({.samples = samples, .inputs = inputs.value_or(all), .seed = 1, .epoch = epoch});
}

TEST(TextWindows, consecutive_windows_have_each_token_as_a_target_once) {
  const auto source = text_windows(count_to(11), {.length = 4, .random = false});
  ASSERT_EQ(source->size(), 3);
  const Batch batch = make(*source, {0, 1, 2});
  EXPECT_TRUE(torch::equal(batch.inputs, torch::tensor({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0}).view({3, 4})));
  EXPECT_TRUE(torch::equal(batch.targets, torch::tensor({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -100, -100}).view({3, 4})));
  EXPECT_EQ(text_windows(count_to(9), {.length = 4, .random = false})->size(), 2);
}

TEST(TextWindows, random_windows_depend_on_seed_epoch_and_sample) {
  const auto source = text_windows(count_to(101), {.length = 10, .random = true});
  ASSERT_EQ(source->size(), 10);
  std::vector<std::int64_t> all(10);
  std::iota(all.begin(), all.end(), 0);
  std::vector<bool> begins(91, false);
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    const Batch batch = make(*source, all, epoch);
    EXPECT_TRUE(torch::equal(batch.inputs[0] + 1, batch.targets));
    const torch::Tensor first = batch.inputs[0].select(1, 0).contiguous();
    for (std::int64_t row = 0; row < 10; ++row)
      begins[static_cast<std::size_t>(first.data_ptr<std::int64_t>()[row])] = true;
  }
  EXPECT_EQ(std::count(begins.begin(), begins.end(), true), 91) << "some places never come";

  const Batch batch = make(*source, all, 3);
  EXPECT_TRUE(torch::equal(make(*source, {4, 2}, 3).inputs, torch::stack({batch.inputs[0][4], batch.inputs[0][2]})));
  EXPECT_FALSE(torch::equal(make(*source, all, 4).inputs, batch.inputs));
}

TEST(TextWindows, make_inputs_of_the_share_only) {
  const auto source = text_windows(count_to(41), {.length = 10, .random = false});
  const Batch batch = make(*source, {0, 1, 2, 3}, 0, RowRange{1, 3});
  EXPECT_EQ(batch.inputs[0].sizes(), (torch::IntArrayRef{2, 10}));
  EXPECT_EQ(batch.inputs[0][0][0].item<int>(), 10);
  EXPECT_EQ(batch.targets[0].size(0), 4);
}

TEST(TextWindows, refuse_invalid_arguments) {
  EXPECT_TRUE(says(error_text<ConfigError>([] { text_windows(count_to(10), {.length = 10}); }),
                   "windows of 10 tokens out of 10: pass 1 to 9"));
  EXPECT_TRUE(says(error_text<ConfigError>([] { text_windows(count_to(10), {.length = 0}); }), "windows of 0"));
}

class TokenWindows : public testing::Test {
 protected:
  /// Documents 0..4, 5..9 (with flags: 7 and 8 are targets), none, 10..29.
  void SetUp() override {
    TokenFileWriter writer(path_, 30);
    writer.add_document(std::vector<std::int64_t>{0, 1, 2, 3, 4});
    writer.add_document(std::vector<std::int64_t>{5, 6, 7, 8, 9}, {false, false, true, true, false});
    writer.add_document({});
    std::vector<std::int64_t> rest(20);
    std::iota(rest.begin(), rest.end(), 10);
    writer.add_document(rest);
    writer.finish();
  }
  const TemporaryFolder folder_{"token_windows"};
  const std::string path_ = folder_ / "a.tokens";
};

TEST_F(TokenWindows, have_the_targets_that_are_learned) {
  const TokenSet set = load_tokens(path_, 30);
  EXPECT_EQ(set.train.end, 10);  // between two documents
  EXPECT_EQ(set.validation.begin, 10);
  EXPECT_EQ(set.validation.end, 30);
  const Batch batch = make(*text_windows(set.train, {.length = 4, .random = false}), {0, 1, 2});
  EXPECT_TRUE(torch::equal(batch.inputs, torch::tensor({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0}).view({3, 4})));
  EXPECT_TRUE(
      torch::equal(batch.targets, torch::tensor({1, 2, 3, 4, -100, -100, 7, 8, -100, -100, -100, -100}).view({3, 4})));
  const Batch second = make(*text_windows(set.validation, {.length = 4, .random = false}), {0}, 0, RowRange{0, 0});
  EXPECT_EQ(second.inputs[0].size(0), 0);
  EXPECT_TRUE(torch::equal(second.targets, torch::tensor({11, 12, 13, 14}).view({1, 4})));
}

TEST_F(TokenWindows, count_documents_in_a_second_input) {
  const TokenRange all{load_tokens(path_, 30).train.file, 0, 30};
  const auto source = text_windows(all, {.length = 13, .random = false, .documents = true});
  const Batch batch = make(*source, {0, 2}, 0, RowRange{0, 2});
  ASSERT_EQ(batch.inputs.count(), 2U);
  EXPECT_TRUE(torch::equal(batch.inputs[1][0], torch::tensor({0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2})));
  EXPECT_TRUE(torch::equal(batch.inputs[1][1], torch::zeros({13}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(batch.targets[0][0], torch::tensor({1, 2, 3, 4, -100, -100, 7, 8, -100, -100, 11, 12, 13})));
}

TEST_F(TokenWindows, take_a_token_for_the_end_of_documents) {
  const std::string path = folder_ / "nano.bin";
  std::ofstream(path, std::ios::binary) << std::string("\1\0\2\0\0\0\3\0\0\0\4\0", 12) + std::string(40, '\0');
  const TokenSet set = load_tokens(path, 5);
  EXPECT_TRUE(says(error_text<ConfigError>([&] { text_windows(set.train, {.length = 5, .documents = true}); }),
                   "does not store the ends of its documents"));
  const auto source = text_windows(set.train, {.length = 5, .random = false, .documents = true, .end_token = 0});
  const Batch batch = make(*source, {0});
  EXPECT_TRUE(torch::equal(batch.inputs[1][0], torch::tensor({0, 0, 0, 1, 1})));
  EXPECT_TRUE(torch::equal(batch.targets[0][0], torch::tensor({2, 0, -100, 0, -100})));
}

TEST_F(TokenWindows, refuse_another_vocabulary) {
  EXPECT_TRUE(says(error_text<DataError>([&] { load_tokens(path_, 29); }), "a vocabulary of 30", "the model has 29"));
  std::ofstream(folder_ / "b.bin", std::ios::binary) << std::string(60, '\1');
  EXPECT_TRUE(
      says(error_text<DataError>([&] { load_tokens(folder_ / "b.bin", 257); }), "token 0 is 257", "257 entries"));
  std::ofstream(folder_ / "c.bin", std::ios::binary) << std::string(20, '\1');
  EXPECT_TRUE(says(error_text<DataError>([&] { load_tokens(folder_ / "c.bin", 300); }), "has 10 tokens", "20"));
  // A file that names a vocabulary, and has another token.
  std::fstream(path_, std::ios::binary | std::ios::in | std::ios::out).seekp(64 + 2 * 3) << 'z';
  const auto source = text_windows(load_tokens(path_, 30).train, {.length = 4, .random = false});
  EXPECT_TRUE(says(error_text<DataError>([&] { make(*source, {0}); }), "token 3 is 122", "of 30 entries"));
}

}  // namespace
}  // namespace penstock::test::text_test
