#include "penstock/text/tokenizer.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"
#include "tests/text/small_tokenizer.h"

namespace penstock::test::tokenizer_test {
namespace {

using Ids = std::vector<std::int64_t>;
using nlohmann::json;

std::shared_ptr<const Tokenizer> tokenizer(const json& document = small_tokenizer()) {
  return Tokenizer::from_json(document.dump());
}

/// The message of the error for the small tokenizer with `value` at `place`.
std::string refusal(const char* place, const json& value) {
  json document = small_tokenizer();
  document[json::json_pointer(place)] = value;
  return error_text<DataError>([&] { tokenizer(document); });
}

TEST(Tokenizer, merges_in_the_order_of_the_ranks) {
  EXPECT_EQ(tokenizer()->encode("abcd", {.special_tokens = false}), Ids({8}));
  EXPECT_EQ(tokenizer()->encode("abcab dcd", {.special_tokens = false}), Ids({6, 2, 6, 5, 3, 7}));
  EXPECT_EQ(tokenizer()->encode("").size(), 1U);
  // Of equal ranks the left one is first; the whole word as a token counts only with ignore_merges.
  json document = small_tokenizer();
  document["model"]["merges"] = {"a a"};
  document["model"]["vocab"]["aa"] = 11;
  document["model"]["vocab"]["aaaa"] = 12;
  EXPECT_EQ(tokenizer(document)->encode("aaaaa", {.special_tokens = false}), Ids({11, 11, 0}));
  EXPECT_EQ(tokenizer(document)->encode("aaaa", {.special_tokens = false}), Ids({11, 11}));
  document["model"]["ignore_merges"] = true;
  EXPECT_EQ(tokenizer(document)->encode("aaaa", {.special_tokens = false}), Ids({12}));
}

TEST(Tokenizer, finds_added_tokens_and_adds_those_of_the_template) {
  EXPECT_EQ(tokenizer()->encode("a<|end|>b"), Ids({0, 9, 1, 9}));
  EXPECT_EQ(tokenizer()->encode("a  <|x|> b", {.special_tokens = false}), Ids({0, 10, 5, 1}));
  EXPECT_EQ(tokenizer()->decode(Ids({0, 9, 10, 5, 1})), "a<|x|> b");
  EXPECT_EQ(tokenizer()->decode(Ids({0, 9, 10, 5, 1}), {.special_tokens = true}), "a<|end|><|x|> b");
  EXPECT_EQ(tokenizer()->decode(Ids({-1, 0, 99})), "a");
  EXPECT_EQ(tokenizer()->id_of("<|x|>"), 10);
  EXPECT_EQ(tokenizer()->token(5), "Ġ");
  EXPECT_EQ(tokenizer()->size(), 11);
}

TEST(Tokenizer, replaces_bytes_that_are_not_utf8_as_python_does) {
  // U+FFFD is EF BF BD: as characters of GPT-2's alphabet "ï", "¿", "½".
  json document = small_tokenizer();
  for (const auto& [token, id] : {std::pair("ï", 11), {"¿", 12}, {"½", 13}}) document["model"]["vocab"][token] = id;
  const auto count = [&](std::string_view text) {
    return tokenizer(document)->encode(text, {.special_tokens = false}).size() / 3;
  };
  EXPECT_EQ(count("\xff\xfe"), 2U);
  EXPECT_EQ(count("\xe2\x82"), 1U);      // the beginning of a character
  EXPECT_EQ(count("\xed\xa0\x80"), 3U);  // a surrogate
  EXPECT_EQ(count("\xc0\xaf"), 2U);      // overlong
  EXPECT_EQ(count("\xf0\x9f\x98\xff"), 2U);
  EXPECT_EQ(tokenizer(document)->decode(Ids({11, 12})), "\xef\xbf\xbd");
}

TEST(Tokenizer, names_what_it_does_not_support) {
  EXPECT_TRUE(says(refusal("/model/type", "Unigram"), "model.type is 'Unigram'", "only BPE"));
  EXPECT_TRUE(says(refusal("/model/dropout", 0.1), "model.dropout is set"));
  EXPECT_TRUE(says(refusal("/model/byte_fallback", true), "model has byte_fallback and ByteLevel"));
  EXPECT_TRUE(says(refusal("/model/end_of_word_suffix", "</w>"), "model.end_of_word_suffix is set"));
  EXPECT_TRUE(says(refusal("/normalizer", {{"type", "Lowercase"}}), "normalizer is a 'Lowercase'", "NFC"));
  EXPECT_TRUE(says(refusal("/decoder", {{"type", "CTC"}}), "decoder is a 'CTC'"));
  EXPECT_TRUE(says(refusal("/post_processor", {{"type", "BertProcessing"}}), "post_processor is a 'BertProcessing'"));
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}, {"invert", false}};
  EXPECT_TRUE(says(refusal("/pre_tokenizer", split), "pre_tokenizer.pattern", "'\\w' at byte 0"));
  const json late = {{"type", "Sequence"}, {"pretokenizers", {small_tokenizer()["pre_tokenizer"], split}}};
  EXPECT_TRUE(says(refusal("/pre_tokenizer", late), "pretokenizers[1] is a 'Split' after ByteLevel"));
  EXPECT_TRUE(says(refusal("/pre_tokenizer/trim", true), "pre_tokenizer has a member 'trim'"));
  for (const char* pattern :
       {"a{1,3}+", "[a&&b]", "^a", "\\x61", "(?<name>a)", "[[:alpha:]]", "\\", "(a", "a\\b", "[\\S]"}) {
    json other = split;
    other["pattern"]["Regex"] = pattern;
    EXPECT_TRUE(says(refusal("/pre_tokenizer", other), "the pattern '")) << pattern;
  }
}

TEST(Tokenizer, names_the_place_of_a_damage) {
  EXPECT_TRUE(says(refusal("/model/vocab/a", -1), "model.vocab", "'a' is -1"));
  EXPECT_TRUE(says(refusal("/model/vocab/a", 1), "the id 1 belongs to two tokens"));
  EXPECT_TRUE(says(refusal("/model/merges/0", "a q"), "model.merges[0] uses 'q'"));
  EXPECT_TRUE(says(refusal("/model/merges/1", "a"), "model.merges[1] is not two tokens"));
  EXPECT_TRUE(says(refusal("/model/unk_token", "?"), "model.unk_token is '?'"));
  EXPECT_TRUE(says(refusal("/added_tokens/0/id", 4), "'<|end|>' has the id 4, and 9 in the vocabulary"));
  EXPECT_TRUE(says(refusal("/added_tokens/1/id", 4), "'<|x|>' has the id 4 of 'e'"));
  EXPECT_TRUE(says(refusal("/added_tokens/1/special", 1), "added_tokens[1].special is neither true nor false"));
  EXPECT_TRUE(says(refusal("/post_processor/special_tokens", json::object()), "has no member '<|end|>'"));
}

TEST(Tokenizer, reads_a_directory) {
  const TokenizerFolder folder;
  folder.write("tokenizer_config.json",
               R"({"bos_token": "<|x|>", "eos_token": {"content": "<|end|>"}, "chat_template": "{{ a }}"})");
  folder.write("generation_config.json", R"({"eos_token_id": [3, 4]})");
  const auto read = Tokenizer::load(folder.path());
  EXPECT_EQ(read->bos(), 10);
  EXPECT_EQ(read->eos(), 9);
  EXPECT_EQ(read->stop_ids(), Ids({3, 4, 9}));
  EXPECT_EQ(read->chat_template(), "{{ a }}");
  EXPECT_NO_THROW(read->require_fits(11));
  EXPECT_TRUE(says(error_text<DataError>([&] { read->require_fits(10); }), "ids up to 10", "10 entries"));
}

TEST(Tokenizer, names_the_file_in_a_directory) {
  const TokenizerFolder folder;
  const auto message = [&] { return error_text<DataError>([&] { Tokenizer::load(folder.path()); }); };
  folder.write("tokenizer_config.json", R"({"bos_token": "<none>"})");
  EXPECT_TRUE(says(message(), "tokenizer_config.json: ", "bos_token is '<none>'"));
  folder.write("tokenizer.json", small_tokenizer().dump().substr(0, 500));
  EXPECT_TRUE(says(message(), "tokenizer.json: ", "breaks off at line 1"));
  EXPECT_TRUE(says(error_text<DataError>([&] { Tokenizer::load(folder.path() + "/none"); }),
                   "neither a tokenizer.json nor a tokenizer.model"));
  std::filesystem::remove(std::filesystem::path(folder.path()) / "tokenizer.json");
  folder.write("tokenizer.model", "no model");
  EXPECT_TRUE(says(message(), "tokenizer.model is not a SentencePiece model"));
}

}  // namespace
}  // namespace penstock::test::tokenizer_test
