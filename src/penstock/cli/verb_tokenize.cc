// penstock tokenize: texts, and chats to learn from, as a file of tokens.
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/cli/verbs.h"
#include "penstock/text/documents.h"

namespace penstock::cli {
namespace {

struct TokenizeFlags {
  std::string model, tokenizer, output, format = "auto", end_token;
  std::vector<std::string> inputs;
};

constexpr std::string_view hf_prefix = "hf:";

/// The directory of the tokenizer.
std::string tokenizer_directory(const TokenizeFlags& flags) {
  require<ConfigError>(flags.model.empty() != flags.tokenizer.empty(),
                       "tokenize needs a tokenizer: pass either --model hf:DIR or --tokenizer DIR");
  if (!flags.tokenizer.empty()) return flags.tokenizer;
  require<ConfigError>(flags.model.starts_with(hf_prefix), "--model ", flags.model,
                       " has no tokenizer: pass hf: and a Hugging Face directory");
  return flags.model.substr(hf_prefix.size());
}

std::optional<std::int64_t> end_token(const TokenizeFlags& flags, const Tokenizer& tokenizer) {
  if (flags.end_token == "none") return std::nullopt;
  if (flags.end_token.empty()) return tokenizer.eos();
  const auto id = tokenizer.id_of(flags.end_token);
  require<ConfigError>(id.has_value(), "--end-token ", flags.end_token, " is not in the vocabulary: pass one of its ",
                       tokenizer.size(), " tokens, or none");
  return id;
}

void tokenize(const TokenizeFlags& flags) {
  const auto tokenizer = Tokenizer::load(tokenizer_directory(flags));
  DocumentOptions options{.end_token = end_token(flags, *tokenizer)};
  TokenFileWriter writer(flags.output, tokenizer->size());
  for (const std::string& input : flags.inputs) {
    options.format = flags.format == "text"    ? DocumentFormat::text
                     : flags.format == "jsonl" ? DocumentFormat::json_lines
                                               : document_format_of(input);
    add_documents(input, *tokenizer, options, writer);
  }
  require<DataError>(writer.tokens() > 0, "there is no text in the input, so there are no tokens for ", flags.output);
  writer.finish();
  std::cout << flags.output << ": " << writer.documents() << (writer.documents() == 1 ? " document, " : " documents, ")
            << writer.tokens() << " tokens of " << writer.width() << " bytes, " << writer.learned()
            << " of them targets of the loss\n";
}

}  // namespace

void add_tokenize_verb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("tokenize", "write texts or chats as a file of tokens for training");
  auto flags = std::make_shared<TokenizeFlags>();
  verb->add_option("inputs", flags->inputs,
                   "files of text (a document each) or of JSON lines, {\"text\": ...} or {\"messages\": ...}")
      ->type_name("INPUT")
      ->required();
  verb->add_option("--output", flags->output, "the file to write (docs/language_models.md)")
      ->type_name("FILE")
      ->required();
  verb->add_option("--model", flags->model, "the Hugging Face directory of the model to be trained")
      ->type_name("hf:DIR");
  verb->add_option("--tokenizer", flags->tokenizer, "a directory with a tokenizer.json or tokenizer.model, instead")
      ->type_name("DIR");
  verb->add_option("--format", flags->format, "auto: jsonl for names that end in .jsonl or .ndjson, else text")
      ->check(CLI::IsMember({"auto", "text", "jsonl"}))
      ->type_name("FORMAT")
      ->capture_default_str();
  verb->add_option("--end-token", flags->end_token,
                   "the token that ends each document that is not a chat, or none (default: the tokenizer's)")
      ->type_name("TOKEN");
  verb->footer("Example:\n  penstock tokenize --model hf:SmolLM2-135M --output train.tokens stories.jsonl");
  verb->callback([flags] { tokenize(*flags); });
}

}  // namespace penstock::cli
