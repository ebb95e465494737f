// Text to tokens and back, as a Hugging Face directory describes it: tokenizer.json or tokenizer.model. The first
// header to read in the module `text`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct EncodeOptions {
  bool special_tokens = true;  // also the tokens with which the model expects a text to begin or end, as <s>
};

struct DecodeOptions {
  bool special_tokens = false;  // also the texts of special tokens, as <|im_end|>
};

/// The tokenizer of a model: byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM2), BPE with byte fallback (Llama 2, Mistral,
/// Gemma), or a model of SentencePiece. Ids and texts are the same as in the package `tokenizers`; truncation and padding
/// that a file asks for are not applied. Immutable and thread-safe.
class Tokenizer {
 public:
  /// Reads tokenizer.json or else tokenizer.model in `directory`, and what tokenizer_config.json,
  /// generation_config.json and chat_template.jinja add if they exist. Throws DataError, which names the file and the
  /// key, if one is damaged or asks for what is not supported.
  static std::shared_ptr<const Tokenizer> load(const std::string& directory);
  /// Of the contents of a tokenizer.json only. Throws DataError.
  static std::shared_ptr<const Tokenizer> from_json(std::string_view json);
  ~Tokenizer();

  /// In bytes that are not UTF-8, what would become U+FFFD in Python with errors='replace' becomes it here.
  std::vector<std::int64_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// The text of `ids`. An id without a token has no text. Bytes that are not UTF-8 become U+FFFD.
  std::string decode(std::span<const std::int64_t> ids, const DecodeOptions& options = {}) const;

  /// One more than the largest id.
  std::int64_t size() const;
  /// Throws DataError if a model whose vocabulary has `rows` entries has none for the largest id.
  void require_fits(std::int64_t rows) const;

  std::optional<std::int64_t> id_of(std::string_view token) const;
  /// The token as it stands in the vocabulary; none for an id without a token.
  std::optional<std::string> token(std::int64_t id) const;

  /// The tokens that begin and end a text.
  std::optional<std::int64_t> bos() const;
  std::optional<std::int64_t> eos() const;
  /// The ids after which a generated text ends: the list in generation_config.json, and eos().
  const std::vector<std::int64_t>& stop_ids() const;
  /// The Jinja template of a chat; empty if there is none. chat.h renders it.
  const std::string& chat_template() const;

 private:
  struct State;
  Tokenizer();

  std::unique_ptr<State> state_;
};

}  // namespace penstock
