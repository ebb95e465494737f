#include "penstock/text/chat.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"
#include "tests/text/small_tokenizer.h"

namespace penstock::test::chat_test {
namespace {

const std::vector<ChatMessage> question = {{"user", " ab "}};
const std::vector<ChatMessage> talk = {{"system", "Be a."}, {"user", "ab"}, {"assistant", "cd"}, {"user", "e"}};

const char* const chatml = "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}";
const char* const llama2 = "{{ bos_token + '[INST] <<SYS>>' }}";
const char* const llama3 = "{{ '<|start_header_id|>' + '<|eot_id|>' }}{% if add_generation_prompt %}";

/// The small tokenizer with a chat template: <|x|> begins and <|end|> ends a text.
std::shared_ptr<const Tokenizer> with_template(const std::string& text) {
  const TokenizerFolder folder;
  folder.write("tokenizer_config.json",
               nlohmann::json{{"bos_token", "<|x|>"}, {"eos_token", "<|end|>"}, {"chat_template", text}}.dump());
  return Tokenizer::load(folder.path());
}

std::string rendered(const std::string& text, const std::vector<ChatMessage>& messages, bool asks = true) {
  return render_chat(*with_template(text), messages, {.asks = asks}).text;
}

std::string refusal(const std::string& text, const std::vector<ChatMessage>& messages) {
  return error_text<ConfigError>([&] { rendered(text, messages); });
}

// chat_templates_test.py compares whole templates with transformers.
TEST(Chat, ends_with_what_precedes_an_answer) {
  EXPECT_EQ(rendered(chatml, question), "<|im_start|>user\n ab <|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(rendered(chatml, question, false), "<|im_start|>user\n ab <|im_end|>\n");
  EXPECT_EQ(rendered(llama2, question), "<|x|>[INST] ab [/INST]");
  EXPECT_EQ(rendered(llama3, question),
            "<|x|><|start_header_id|>user<|end_header_id|>\n\nab<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(rendered("{{ '[INST] ' + message['content'] + ' [/INST]' }}", question), "<|x|>[INST]  ab  [/INST]");
}

TEST(Chat, uses_the_default_system_message_of_the_template) {
  const std::string text = std::string(chatml) + "{{ '<|im_start|>system\nBe\n  b.<|im_end|>\n' }}";
  EXPECT_EQ(rendered(text, question, false),
            "<|im_start|>system\nBe\n  b.<|im_end|>\n<|im_start|>user\n ab <|im_end|>\n");
  EXPECT_EQ(rendered(text, talk, false).substr(0, 37), "<|im_start|>system\nBe a.<|im_end|>\n<|");
}

TEST(Chat, learns_answers_with_what_ends_them) {
  const auto tokenizer = with_template("{{ bos_token + '[INST] <<SYS>>' + message['content'] + eos_token }}");
  const ChatTokens tokens = encode_chat(*tokenizer, talk);
  ASSERT_EQ(tokens.ids.size(), tokens.is_learned.size());
  std::vector<std::int64_t> learned;
  for (std::size_t i = 0; i < tokens.ids.size(); ++i)
    if (tokens.is_learned[i]) learned.push_back(tokens.ids[i]);
  EXPECT_EQ(tokenizer->decode(learned, {.special_tokens = true}), " cd <|end|>");
}

TEST(Chat, refuses_what_the_format_does_not_have) {
  EXPECT_TRUE(says(refusal("", question), "is missing", "--raw"));
  EXPECT_TRUE(says(refusal("{{ message }}", question), "not one of ChatML, Llama 2, Llama 3 and Mistral", "--raw"));
  EXPECT_TRUE(says(refusal(std::string(chatml) + "{{ enable_thinking }}", question), "ChatML with 'think'", "--raw"));
  EXPECT_TRUE(says(refusal(llama2, {{"user", "a"}, {"user", "b"}}), "message 1", "'user'", "must be 'assistant'"));
  EXPECT_TRUE(says(refusal("{{ '[INST]' }}", talk), "begins with a system message"));
}

}  // namespace
}  // namespace penstock::test::chat_test
