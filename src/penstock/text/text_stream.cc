#include "penstock/text/text_stream.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "penstock/base/error.h"

namespace penstock {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD: bytes that make no character, or not yet

/// How many bytes at the end of `text` may be the beginning of `stop`.
std::size_t begun(const std::string& text, const std::string& stop) {
  std::size_t bytes = std::min(text.size(), stop.size() - 1);
  while (bytes > 0 && text.compare(text.size() - bytes, bytes, stop, 0, bytes) != 0) --bytes;
  return bytes;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops)
    : tokenizer_(tokenizer), stops_(std::move(stops)) {
  for (const std::string& stop : stops_)
    require<ConfigError>(!stop.empty(), "an empty text at which to stop: pass at least one character");
}

std::string TextStream::extend_to(const std::string& text) {
  if (text.size() <= text_.size()) return {};
  std::string added = text.substr(text_.size());
  text_ = text;
  return added;
}

// Decodes all tokens again, because a decoder may join neighbours, as ByteFallback does.
std::string TextStream::add(std::int64_t token) {
  if (is_stopped_) return {};
  tokens_.push_back(token);
  std::string text = tokenizer_.decode(tokens_);
  std::size_t certain = text.size();
  for (const std::string& stop : stops_)
    if (const std::size_t at = text.find(stop); at != std::string::npos) {
      certain = std::min(certain, at);
      is_stopped_ = true;
    }
  if (!is_stopped_) {
    while (std::string_view(text).substr(0, certain).ends_with(replacement)) certain -= replacement.size();
    text.resize(certain);
    for (const std::string& stop : stops_) certain = std::min(certain, text.size() - begun(text, stop));
  }
  return extend_to(text.substr(0, certain));
}

std::string TextStream::finish() {
  if (is_stopped_) return {};
  return extend_to(tokenizer_.decode(tokens_));
}

}  // namespace penstock
