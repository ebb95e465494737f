// Byte-pair encoding: splits a word into the tokens of a vocabulary by merging neighbours in the order of their ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "penstock/base/json.h"

namespace penstock::text {

/// Immutable and thread-safe; the words of one thread at a time are remembered, which makes it several times faster.
class Bpe {
 public:
  /// Reads the member "model" of a tokenizer.json, of the type BPE. `is_byte_level`: the vocabulary is written in
  /// GPT-2's alphabet of bytes. Throws DataError, which names the place, if it is damaged or asks for what is not
  /// supported.
  Bpe(const StrictValue& model, bool is_byte_level);
  ~Bpe();

  /// Encodes the words of one text.
  class Encoder;

  std::optional<std::int64_t> id_of(std::string_view token) const;
  /// As it stands in the vocabulary; null for an id without a token. It lives as long as this.
  const std::string* token(std::int64_t id) const;
  std::int64_t largest_id() const { return largest_id_; }

 private:
  using Id = std::uint32_t;
  struct Merge {
    std::uint32_t rank;
    Id result;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  struct Cache;
  using Vocabulary = std::unordered_map<std::string, Id, Hash, std::equal_to<>>;

  void read_vocabulary(const StrictValue& vocabulary);
  void read_merges(const StrictValue& merges);
  void use_bytes();
  const Merge* merge_of(Id left, Id right) const;
  std::vector<Id> symbols_of(std::string_view word) const;
  void append_tokens(std::string_view word, std::vector<std::int64_t>& ids) const;

  Vocabulary ids_;                                     // as in the file
  std::unordered_map<Id, const std::string*> tokens_;  // into ids_
  Vocabulary words_;                                   // what text is compared with: bytes of a byte-level vocabulary
  std::unordered_map<std::uint64_t, Merge> merges_;    // by left << 32 | right
  std::int64_t largest_id_ = -1;
  std::optional<Id> unknown_;
  bool is_byte_level_ = false, falls_back_to_bytes_ = false, fuses_unknown_ = false, ignores_merges_ = false;
  std::string cut_before_;  // no token continues over this mark after another character: words can end there
  std::unique_ptr<Cache> cache_;
};

class Bpe::Encoder {
 public:
  explicit Encoder(const Bpe& model);
  ~Encoder();
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  /// Appends the ids of one word, which is not empty.
  void encode(std::string_view word, std::vector<std::int64_t>& ids);

 private:
  void encode_cached(std::string_view word, std::vector<std::int64_t>& ids);

  const Bpe& model_;
  bool has_cache_;
};

}  // namespace penstock::text
