#include "penstock/text/documents.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/text/chat.h"
#include "penstock/text/unicode.h"

namespace penstock {
namespace {

/// A file of plain text is read whole.
constexpr std::uint64_t most_text_bytes = std::uint64_t{1} << 30;

void add_text(const std::string& text, const Tokenizer& tokenizer, const DocumentOptions& options,
              TokenFileWriter& writer) {
  std::vector<std::int64_t> ids = tokenizer.encode(text);
  if (options.end_token && (ids.empty() || ids.back() != *options.end_token)) ids.push_back(*options.end_token);
  writer.add_document(ids);
}

std::vector<ChatMessage> messages_of(const StrictValue& list) {
  std::vector<ChatMessage> messages;
  for (const StrictValue& each : list.list()) messages.push_back({each["role"].text(), each["content"].text()});
  require<DataError>(!messages.empty(), list.place(), " is an empty list");
  return messages;
}

void add_line(const std::string& line, const Tokenizer& tokenizer, const DocumentOptions& options,
              TokenFileWriter& writer) {
  const std::string text = text::repaired(line);
  nlohmann::json document;
  try {
    document = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(complaint_about_json(text, "the line", error));
  }
  const StrictValue record(document, "the line");
  if (record.has("messages")) {
    const ChatTokens chat = encode_chat(tokenizer, messages_of(record["messages"]));
    writer.add_document(chat.ids, chat.is_learned);
    return;
  }
  require<DataError>(record.has("text"), "the line has neither a member 'text' nor 'messages'");
  add_text(record["text"].text(), tokenizer, options, writer);
}

}  // namespace

DocumentFormat document_format_of(const std::string& path) {
  return path.ends_with(".jsonl") || path.ends_with(".ndjson") ? DocumentFormat::json_lines : DocumentFormat::text;
}

void add_documents(const std::string& path, const Tokenizer& tokenizer, const DocumentOptions& options,
                   TokenFileWriter& writer) {
  if (options.format == DocumentFormat::text)
    return add_text(read_text(path, {.most_bytes = most_text_bytes}), tokenizer, options, writer);
  std::ifstream file(path, std::ios::binary);
  require<DataError>(file.is_open(), path, ": cannot be read: ", std::strerror(errno));
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      add_line(line, tokenizer, options, writer);
    } catch (const DataError& error) {
      throw DataError(say(path, ": line ", number, ": ", error.what()));
    }
  }
  require<DataError>(file.eof(), path, ": cannot be read to its end: ", std::strerror(errno));
}

}  // namespace penstock
