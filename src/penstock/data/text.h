// Text as numbers: one token for each character that occurs.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/tensor.h"
#include "penstock/data/sample_source.h"

namespace penstock {

/// Bytes and their tokens: 0..size()-1 in the order of the bytes. Text in UTF-8 is a token for each of its bytes.
class Vocabulary {
 public:
  /// The bytes that occur in `text`.
  static Vocabulary of(std::string_view text);

  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }
  /// All bytes in order: `of()` this gives the same vocabulary.
  const std::string& bytes() const { return bytes_; }
  /// Throws DataError, naming it, for a byte that has no token.
  std::vector<std::int64_t> encode(std::string_view text) const;
  /// Throws ConfigError for a number that is no token.
  std::string decode(const std::vector<std::int64_t>& tokens) const;

 private:
  std::string bytes_;
  std::array<std::int16_t, 256> token_{};  // -1: none
};

/// A text, its vocabulary, and its two parts: the last tenth is for validation.
struct TextSet {
  Vocabulary vocabulary;
  torch::Tensor train;  // [tokens] of int64
  torch::Tensor validation;
};

/// The file at `path`, or in the directory `path` or its folder `text` tinyshakespeare.txt, or else the only .txt file
/// there. Throws DataError naming what was looked for, and for a text of fewer than 20 bytes.
TextSet load_text(const std::string& path);

struct WindowOptions {
  std::int64_t length = 64;  // T
  /// Random: as many windows as fit into the text, anew each epoch, from anywhere. Otherwise one behind the other, so
  /// that each token but the first is a target once; the last one is filled up with targets that do not count (-100).
  bool random = true;
};

/// Windows of `tokens` [N] of int64, as samples: inputs [T], and for targets [T] the tokens that come next.
/// Throws ConfigError for a length below 1, or one that the text does not have.
std::shared_ptr<const SampleSource> text_windows(torch::Tensor tokens, const WindowOptions& options);

}  // namespace penstock
