#include "penstock/text/chat.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/text/unicode.h"

namespace penstock {
namespace {

using Messages = std::vector<ChatMessage>;

/// Without white space at both ends, as Python's strip().
std::string stripped(std::string_view text) {
  const auto is_space = [](char32_t code) { return text::is_white_space(code) || (code >= 0x1c && code <= 0x1f); };
  while (!text.empty() && is_space(text::first_character(text).code))
    text.remove_prefix(text::first_character(text).bytes);
  while (!text.empty() && is_space(text::last_character(text).code))
    text.remove_suffix(text::last_character(text).bytes);
  return std::string(text);
}

/// What is recognised in a Jinja template.
class Template {
 public:
  explicit Template(const Tokenizer& tokenizer) {
    // A line break in a literal may be written as \n or as itself.
    for (const char c : tokenizer.chat_template()) text_ += c == '\n' ? std::string("\\n") : std::string(1, c);
    if (tokenizer.bos()) bos = tokenizer.token(*tokenizer.bos()).value_or("");
    if (tokenizer.eos()) eos = tokenizer.token(*tokenizer.eos()).value_or("");
  }

  bool has(std::string_view part) const { return text_.find(part) != std::string::npos; }
  bool has_any(std::initializer_list<std::string_view> parts) const {
    return std::any_of(parts.begin(), parts.end(), [this](std::string_view part) { return has(part); });
  }

  /// The default system message: what a literal has between the two marks, if any does.
  std::string system_message(const std::string& begin, std::string_view end) const {
    for (std::size_t at = text_.find(begin); at != std::string::npos; at = text_.find(begin, at + 1)) {
      const std::size_t from = at + begin.size(), to = text_.find(end, from);
      if (to == std::string::npos) break;
      std::string found = text_.substr(from, to - from);
      for (std::size_t line = 0; (line = found.find("\\n", line)) != std::string::npos;) found.replace(line, 2, "\n");
      if (!found.empty() && found.find_first_of("'\"{}\\") == std::string::npos) return found;
    }
    return "";
  }

  std::string bos, eos;

 private:
  std::string text_;
};

/// Throws ConfigError unless the roles are user, assistant, user, and so on, as such templates require.
void require_turns(const Messages& messages, std::size_t first, std::string_view format) {
  for (std::size_t i = first; i < messages.size(); ++i) {
    const std::string_view expected = (i - first) % 2 == 0 ? "user" : "assistant";
    require<ConfigError>(messages[i].role == expected, "message ", i, " of the chat is of the role '",
                         printable(messages[i].role), "': in the format of ", format, " it must be '", expected, "'");
  }
}

void add_answer(ChatText& chat, const std::string& text) {
  const std::size_t begin = chat.text.size();
  chat.text += text;
  chat.answers.push_back({begin, chat.text.size()});
}

ChatText chatml(const Template& format, const Messages& messages, bool asks) {
  ChatText chat;
  const std::string system = format.system_message("<|im_start|>system\\n", "<|im_end|>");
  if (!system.empty() && (messages.empty() || messages.front().role != "system"))
    chat.text = "<|im_start|>system\n" + system + "<|im_end|>\n";
  for (const ChatMessage& message : messages) {
    chat.text += "<|im_start|>" + message.role + "\n";
    if (message.role == "assistant")
      add_answer(chat, message.content + "<|im_end|>");
    else
      chat.text += message.content + "<|im_end|>";
    chat.text += "\n";
  }
  if (asks) chat.text += "<|im_start|>assistant\n";
  return chat;
}

/// The date of a template of Llama 3.1 or later.
std::string date_of(const Template& format) {
  if (!format.has("strftime_now")) return "26 Jul 2024";
  constexpr std::array months = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  localtime_r(&now, &day);
  return say(day.tm_mday < 10 ? "0" : "", day.tm_mday, " ", months[static_cast<std::size_t>(day.tm_mon)], " ",
             day.tm_year + 1900);
}

ChatText llama3(const Template& format, const Messages& messages, bool asks) {
  const auto header = [](const std::string& role) { return "<|start_header_id|>" + role + "<|end_header_id|>\n\n"; };
  ChatText chat{format.bos, {}};
  std::size_t first = 0;
  if (format.has("Cutting Knowledge Date")) {
    chat.text += header("system") + "Cutting Knowledge Date: December 2023\nToday Date: " + date_of(format) + "\n\n";
    if (!messages.empty() && messages.front().role == "system") chat.text += stripped(messages[first++].content);
    chat.text += "<|eot_id|>";
  }
  for (; first < messages.size(); ++first) {
    const ChatMessage& message = messages[first];
    chat.text += header(message.role);
    const std::string content = stripped(message.content) + "<|eot_id|>";
    if (message.role == "assistant")
      add_answer(chat, content);
    else
      chat.text += content;
  }
  if (asks || !format.has("add_generation_prompt")) chat.text += header("assistant");
  return chat;
}

ChatText llama2(const Template& format, const Messages& messages) {
  ChatText chat;
  const bool has_system = !messages.empty() && messages.front().role == "system";
  require_turns(messages, has_system ? 1 : 0, "Llama 2");
  for (std::size_t i = has_system ? 1 : 0; i < messages.size(); ++i) {
    std::string content = messages[i].content;
    if (i == 1 && has_system) content = "<<SYS>>\n" + messages[0].content + "\n<</SYS>>\n\n" + content;
    if (messages[i].role == "user")
      chat.text += format.bos + "[INST] " + stripped(content) + " [/INST]";
    else
      add_answer(chat, " " + stripped(content) + " " + format.eos);
  }
  return chat;
}

ChatText mistral(const Template& format, const Messages& messages) {
  ChatText chat{format.bos, {}};
  const bool has_system = !messages.empty() && messages.front().role == "system";
  require<ConfigError>(
      !has_system || format.has("system_message"),
      "the chat begins with a system message, which this format of Mistral does not have: put it into ",
      "the first message of the user");
  const std::size_t first = has_system ? 1 : 0;
  require_turns(messages, first, "Mistral");
  // Versions of the template differ in spaces, and in the message that the system message is put before.
  const std::string begin = format.has_any({"' [INST] ", "\" [INST] "}) ? " [INST] " : "[INST] ";
  const std::string end = format.has(" [/INST]") ? " [/INST]" : "[/INST]";
  const bool has_space = format.has_any({"' ' + message", "\" \" + message"});
  const bool is_trimmed = format.has_any({"|trim", "| trim"});
  const std::string after = format.has_any({"eos_token + ' '", "eos_token + \" \""}) ? " " : "";
  const std::size_t with_system = format.has("loop.last and system_message") ? messages.size() - 1 : first;
  for (std::size_t i = first; i < messages.size(); ++i) {
    const std::string& content = messages[i].content;
    if (messages[i].role == "user") {
      const bool is_after_system = has_system && i == with_system;
      chat.text += begin + (is_after_system ? messages[0].content + "\n\n" : "") + content + end;
    } else {
      add_answer(chat, (has_space ? " " : "") + (is_trimmed ? stripped(content) : content) + format.eos);
      chat.text += after;
    }
  }
  return chat;
}

[[noreturn]] void refuse_template(std::string_view why) {
  throw ConfigError(
      say("the chat template of the tokenizer ", why, ": pass --raw, and write the prompt as the model expects it"));
}

}  // namespace

ChatText render_chat(const Tokenizer& tokenizer, const Messages& messages, const ChatOptions& options) {
  if (tokenizer.chat_template().empty()) refuse_template("is missing");
  const Template format(tokenizer);
  if (format.has("<|start_header_id|>") && format.has("<|eot_id|>")) return llama3(format, messages, options.asks);
  if (format.has("[INST]")) {
    if (format.has("[SYSTEM_PROMPT]")) refuse_template("has the mark [SYSTEM_PROMPT]");
    return format.has("<<SYS>>") ? llama2(format, messages) : mistral(format, messages);
  }
  const bool is_chatml = format.has("<|im_start|>") && format.has_any({"<|im_end|>\\n", "<|im_end|>' + '\\n'",
                                                                       "<|im_end|>\" + \"\\n\"", "<|im_end|>'+'\\n'"});
  if (!is_chatml) refuse_template("is not one of ChatML, Llama 2, Llama 3 and Mistral");
  for (const std::string_view mark : {"bos_token", "think", "trim", "strip("})
    if (format.has(mark)) refuse_template(say("is ChatML with '", mark, "'"));
  return chatml(format, messages, options.asks);
}

ChatTokens encode_chat(const Tokenizer& tokenizer, const Messages& messages) {
  constexpr EncodeOptions plain{.special_tokens = false};  // the template writes them
  const ChatText chat = render_chat(tokenizer, messages, {.asks = false});
  ChatTokens tokens{tokenizer.encode(chat.text, plain), {}};
  tokens.is_learned.resize(tokens.ids.size());
  // A token that begins before `end` and ends after it is not counted.
  const auto tokens_before = [&](std::size_t end) {
    const auto ids = tokenizer.encode(std::string_view(chat.text).substr(0, end), plain);
    const auto limit = std::min(ids.size(), tokens.ids.size());
    const auto differ =
        std::mismatch(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(limit), tokens.ids.begin());
    return differ.first - ids.begin();
  };
  for (const ChatText::Answer& answer : chat.answers)
    std::fill(tokens.is_learned.begin() + tokens_before(answer.begin),
              tokens.is_learned.begin() + tokens_before(answer.end), true);
  return tokens;
}

}  // namespace penstock
