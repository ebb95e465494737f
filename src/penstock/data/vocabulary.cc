#include "penstock/data/vocabulary.h"

#include <charconv>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

std::string shown(unsigned char byte) {
  const bool is_printable = byte > 0x20 && byte < 0x7f;
  return is_printable ? say("'", static_cast<char>(byte), "'") : say("byte ", int{byte});
}

}  // namespace

Vocabulary Vocabulary::of(std::string_view text) {
  std::array<bool, 256> occurs{};
  for (const char byte : text) occurs[static_cast<unsigned char>(byte)] = true;
  Vocabulary made;
  made.token_.fill(-1);
  for (std::size_t byte = 0; byte < occurs.size(); ++byte) {
    if (!occurs[byte]) continue;
    made.token_[byte] = static_cast<std::int16_t>(made.bytes_.size());
    made.bytes_ += static_cast<char>(byte);
  }
  return made;
}

Vocabulary Vocabulary::from_numbers(std::string_view numbers) {
  std::string bytes;
  for (const char *at = numbers.data(), *end = at + numbers.size(); at < end;) {
    int byte = -1;
    const auto [next, error] = std::from_chars(at, end, byte);
    const bool goes_on = next < end && *next == ',';
    require<DataError>(error == std::errc() && byte >= 0 && byte < 256 && (next == end || goes_on),
                       "this is not a list of bytes such as 10,32,33");
    bytes += static_cast<char>(byte);
    at = next + (goes_on ? 1 : 0);
  }
  Vocabulary made = of(bytes);
  require<DataError>(made.bytes() == bytes && made.numbers() == numbers, "the bytes are not in ascending order");
  return made;
}

std::string Vocabulary::numbers() const {
  return listed(bytes_, ",", [](char byte) { return int{static_cast<unsigned char>(byte)}; });
}

std::vector<std::int64_t> Vocabulary::encode(std::string_view text) const {
  std::vector<std::int64_t> tokens;
  tokens.reserve(text.size());
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (bytes_.empty() || token_[byte] < 0)
      throw DataError(say("the text has ", shown(byte), ", which is not among the ", size(),
                          " characters of the model's vocabulary"));
    tokens.push_back(token_[byte]);
  }
  return tokens;
}

std::string Vocabulary::decode(const std::vector<std::int64_t>& tokens) const {
  std::string text;
  for (const std::int64_t token : tokens) {
    require<ConfigError>(token >= 0 && token < size(), "token ", token, " of a vocabulary of ", size(),
                         ": they count from 0");
    text += bytes_[static_cast<std::size_t>(token)];
  }
  return text;
}

}  // namespace penstock
