// The functions under test of the fuzzers of tokenizers and token files, as in data_input.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/text/token_file.h"
#include "penstock/text/tokenizer.h"
#include "tests/base/error_text.h"

namespace penstock {

/// A tokenizer.json, which encodes and decodes a few texts.
inline void try_tokenizer(std::string_view json) {
  const auto tokenizer = test::accepted<DataError>([&] { return Tokenizer::from_json(json); });
  if (!tokenizer) return;
  const std::int64_t size = (*tokenizer)->size();
  for (const std::string_view text :
       {"", "a b  ab\n<|end|>12", "\xc3\xa9\xe2\x96\x81\xff d'll", "aaaa bbbb abab <s>"}) {
    // Refused: a pattern that takes too many steps.
    const auto ids = test::accepted<Failure>([&] { return (*tokenizer)->encode(text, {.special_tokens = false}); });
    if (!ids) continue;
    for (const std::int64_t id : *ids)
      require<InternalError>(id >= 0 && id < size && (*tokenizer)->token(id), "the id ", id, " of ", size);
    const auto decoded = test::accepted<Failure>([&] { return (*tokenizer)->decode(*ids, {.special_tokens = true}); });
    require<InternalError>(!decoded || utf8_prefix(*decoded) == decoded->size(), "the text is not UTF-8");
  }
}

inline void try_token_file(std::span<const std::uint8_t> input) {
  const auto bytes = std::as_bytes(input);
  // With this name it may lack a header.
  const auto file = test::accepted<DataError>([&] { return TokenFile::of_bytes(bytes, "input.bin"); });
  if (!file) return;
  const TokenFile& tokens = **file;
  require<InternalError>(tokens.size() > 0 && static_cast<std::size_t>(tokens.size()) <= bytes.size(), tokens.size(),
                         " tokens in ", bytes.size(), " bytes");
  for (std::int64_t at = 0; at < tokens.size(); ++at) {
    const std::int64_t document = tokens.document_of(at);
    require<InternalError>(tokens.token(at) >= 0 && document >= 0 && document <= tokens.documents(), "the token ", at);
    if (tokens.documents() > 0)
      require<InternalError>(at < tokens.document_end(document), "token ", at, " is after document ", document);
    (void)tokens.is_learned(at);
  }
}

}  // namespace penstock
