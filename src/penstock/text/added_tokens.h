// Tokens that are found in a text before the model sees it, such as <|im_end|>.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/json.h"

namespace penstock::text {

struct AddedToken {
  std::int64_t id = 0;
  std::string content;
  bool special = false;      // left out when ids become text
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool single_word = false;  // only between characters that continue no word
  bool normalized = true;    // searched for in the normalised text
};

/// Reads the member "added_tokens" of a tokenizer.json. Throws DataError, which names the place.
std::vector<AddedToken> read_added_tokens(const StrictValue& list);

/// Finds one set of tokens in texts. Immutable and thread-safe.
class TokenFinder {
 public:
  TokenFinder() = default;  // finds nothing
  explicit TokenFinder(std::vector<AddedToken> tokens);

  /// Calls `on_text` with the text between tokens and the position of its first byte, and `on_token` with the tokens,
  /// in their order. At each position the longest token counts. `text` is valid UTF-8.
  void split(std::string_view text, const std::function<void(std::string_view, std::size_t)>& on_text,
             const std::function<void(std::int64_t)>& on_token) const;

 private:
  const AddedToken* longest_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::array<std::vector<std::size_t>, 256> by_first_byte_;  // indices, the longest token first
};

}  // namespace penstock::text
