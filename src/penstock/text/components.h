// What surrounds the model of a tokenizer.json: the normalizer changes a text, the pre-tokenizer splits it into words,
// and the decoder makes text of tokens.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/json.h"

namespace penstock::text {

/// Immutable and thread-safe.
class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  /// Reads the member "normalizer" of a tokenizer.json: NFC, NFD, NFKC, NFKD, Replace, Prepend, or a Sequence. Throws
  /// DataError, which names the place, for others.
  explicit Normalizer(const StrictValue& component) { add(component); }

  /// `text` is valid UTF-8.
  std::string operator()(std::string text) const;

 private:
  void add(const StrictValue& component);

  std::vector<std::function<std::string(std::string)>> steps_;
};

/// Receives a piece of text, which is valid only during the call, and whether it begins the whole input.
using PieceSink = std::function<void(std::string_view piece, bool begins)>;

/// Immutable and thread-safe.
class PreTokenizer {
 public:
  PreTokenizer() = default;  // the text is one word
  /// Reads the member "pre_tokenizer" of a tokenizer.json: ByteLevel, Split, Digits, Metaspace,
  /// Punctuation, WhitespaceSplit, or a Sequence. Throws DataError, which names the place, for others.
  explicit PreTokenizer(const StrictValue& component) { add(component); }

  /// Calls `word` with the words of `text`, which is valid UTF-8, in their order; none is empty.
  void split(std::string_view text, bool begins, const PieceSink& word) const { run(0, text, begins, word); }

  /// True if the words are for a model of bytes, whose vocabulary is written in GPT-2's alphabet (unicode.h).
  bool is_byte_level() const { return is_byte_level_; }

 private:
  using Step = std::function<void(std::string_view text, bool begins, const PieceSink& sink)>;

  void add(const StrictValue& component);
  void add_byte_level(const StrictValue& component);
  void add_metaspace(const StrictValue& component);
  void run(std::size_t step, std::string_view text, bool begins, const PieceSink& word) const;

  std::vector<Step> steps_;
  bool is_byte_level_ = false;
};

/// Immutable and thread-safe.
class Decoder {
 public:
  /// Reads the member "decoder" of a tokenizer.json: ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, or a
  /// Sequence. Throws DataError, which names the place, for others.
  explicit Decoder(const StrictValue& component) { add(component); }

  /// Joins tokens, as they stand in the vocabulary. Bytes that are not UTF-8 become U+FFFD.
  std::string operator()(std::vector<std::string> tokens) const;

 private:
  void add(const StrictValue& component);

  std::vector<std::function<void(std::vector<std::string>&)>> steps_;
};

}  // namespace penstock::text
