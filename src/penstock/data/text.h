// Text as tokens: one token per distinct byte.
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

/// A mapping of bytes to tokens 0..size()-1, ascending by byte. UTF-8 text has one token per byte. Immutable.
class Vocabulary {
 public:
  /// The vocabulary of the bytes that occur in `text`.
  static Vocabulary of(std::string_view text);

  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }
  /// All bytes, ascending; of(bytes()) returns the same vocabulary.
  const std::string& bytes() const { return bytes_; }
  /// Throws DataError, which names the byte, for a byte without a token.
  std::vector<std::int64_t> encode(std::string_view text) const;
  /// Throws ConfigError for a number outside 0..size()-1.
  std::string decode(const std::vector<std::int64_t>& tokens) const;

 private:
  std::string bytes_;
  std::array<std::int16_t, 256> token_{};  // -1: none
};

/// A text as tokens, split into a training part and the last tenth for validation.
struct TextSet {
  Vocabulary vocabulary;
  torch::Tensor train;       // [tokens] of int64
  torch::Tensor validation;  // likewise
};

/// Loads a text: the file `path` or, if `path` is a directory, tinyshakespeare.txt or else the only .txt file in it or
/// in its folder `text`. Throws DataError, which names the files searched for, or for a text of fewer than 20 bytes.
TextSet load_text(const std::string& path);

struct WindowOptions {
  std::int64_t length = 64;  // T
  /// True: each epoch draws as many windows as fit into the text, at random positions. False: consecutive windows, so
  /// that each token but the first is a target exactly once; the last window is padded with targets -100, which the
  /// loss ignores.
  bool random = true;
};

/// Makes samples of windows of `tokens` (int64 [N]): inputs [T], and as targets [T] the next tokens. Shares the memory
/// of `tokens`. Throws ConfigError for tokens of another shape or dtype, and for a length below 1 or not below N.
std::shared_ptr<const SampleSource> text_windows(torch::Tensor tokens, const WindowOptions& options);

}  // namespace penstock
