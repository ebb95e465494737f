#include "penstock/text/text_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::test::text_stream_test {
namespace {

/// A vocabulary of single bytes in GPT-2's alphabet: 0 to 4 are letters, 5 and 6 the two bytes of U+00E9.
std::shared_ptr<const Tokenizer> bytes() {
  return Tokenizer::from_json(R"({
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
              "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "\u00c3": 5, "\u00a9": 6}, "merges": []}})");
}

std::vector<std::string> pieces(TextStream& stream, const std::vector<std::int64_t>& tokens) {
  std::vector<std::string> pieces;
  for (const std::int64_t token : tokens) pieces.push_back(stream.add(token));
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(TextStream, waits_for_whole_characters) {
  const auto tokenizer = bytes();
  TextStream stream(*tokenizer);
  EXPECT_EQ(pieces(stream, {0, 5, 6, 1}), (Pieces{"a", "", "\u00e9", "b"}));
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.add(5), "");
  EXPECT_EQ(stream.finish(), "\ufffd") << "the sequence ends within a character";
  EXPECT_EQ(stream.text(), "a\u00e9b\ufffd");
}

TEST(TextStream, ends_before_a_stop_and_holds_back_what_may_begin_one) {
  const auto tokenizer = bytes();
  TextStream stream(*tokenizer, {"bcd", "ee"});
  EXPECT_EQ(pieces(stream, {0, 1, 2, 0, 4, 1, 2, 3, 0}), (Pieces{"a", "", "", "bca", "", "e", "", "", ""}));
  EXPECT_TRUE(stream.is_stopped());
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.text(), "abcae");

  TextStream unfinished(*tokenizer, {"bcd"});
  EXPECT_EQ(pieces(unfinished, {1, 2}), (Pieces{"", ""}));
  EXPECT_EQ(unfinished.finish(), "bc");
  EXPECT_FALSE(unfinished.is_stopped());
}

TEST(TextStream, refuses_an_empty_stop) {
  const auto tokenizer = bytes();
  EXPECT_TRUE(says(error_text<ConfigError>([&] { TextStream(*tokenizer, {"a", ""}); }), "at least one character"));
}

}  // namespace
}  // namespace penstock::test::text_stream_test
