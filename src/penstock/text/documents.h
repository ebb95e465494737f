// From files of text to files of tokens: plain text, and JSON lines of texts or chats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "penstock/text/token_file.h"
#include "penstock/text/tokenizer.h"

namespace penstock {

enum class DocumentFormat {
  text,        // a file is one document
  json_lines,  // a line is one document, {"text": TEXT} or {"messages": [{"role": ROLE, "content": TEXT}, ...]}
};

/// json_lines for names that end in .jsonl or .ndjson, else text.
DocumentFormat document_format_of(const std::string& path);

struct DocumentOptions {
  DocumentFormat format = DocumentFormat::text;
  /// Ends each document that is not a chat, unless it ends with this token already.
  std::optional<std::int64_t> end_token = {};
};

/// Appends the documents of a file to `writer`. Of a chat, rendered by render_chat(), only the answers are targets of
/// the loss. Other members of a line and empty lines are ignored. Throws DataError, which names the file and the line.
void add_documents(const std::string& path, const Tokenizer& tokenizer, const DocumentOptions& options,
                   TokenFileWriter& writer);

}  // namespace penstock
