// Chats as text: the formats of ChatML, Llama 2, Llama 3 and Mistral.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/text/tokenizer.h"

namespace penstock {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

/// A chat as the text that the model expects, and the bytes of it that the assistant writes, with what ends an answer.
struct ChatText {
  struct Answer {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  std::string text;
  std::vector<Answer> answers;
};

struct ChatOptions {
  bool asks = true;  // ends with what precedes an answer, as transformers' add_generation_prompt
};

/// Renders a chat as the template of the tokenizer's directory does. The format is recognised by the marks in the
/// template; a default system message that the template contains is used. Throws ConfigError for a template of another
/// format, without a template, and for roles in an order that the format does not have.
ChatText render_chat(const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages,
                     const ChatOptions& options = {});

/// A chat to learn from: its tokens, and which of them, the tokens of the answers, the loss counts as targets.
struct ChatTokens {
  std::vector<std::int64_t> ids;
  std::vector<bool> is_learned;
};

/// The tokens of a whole chat. Throws like render_chat().
ChatTokens encode_chat(const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages);

}  // namespace penstock
