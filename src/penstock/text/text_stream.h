// The text of a sequence while its tokens arrive one by one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/text/tokenizer.h"

namespace penstock {

/// Not thread-safe.
class TextStream {
 public:
  /// The text ends before the first of `stops`, if one occurs. `tokenizer` must outlive it. Throws ConfigError for an
  /// empty stop.
  explicit TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops = {});

  /// Adds a token, and returns the text that has become certain: no incomplete character, nothing that may be the
  /// beginning of a stop.
  std::string add(std::int64_t token);
  /// Whether a stop has occurred: later tokens add nothing.
  bool is_stopped() const { return is_stopped_; }
  /// No token follows: returns what add() has held back.
  std::string finish();
  /// All text that was returned.
  const std::string& text() const { return text_; }

 private:
  std::string extend_to(const std::string& text);

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::vector<std::int64_t> tokens_;
  std::string text_;
  bool is_stopped_ = false;
};

}  // namespace penstock
