// A tokenizer.model, as SentencePiece writes it, executed by that library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::text {

/// Immutable and thread-safe.
class SentencePieceModel {
 public:
  /// Throws DataError if the file is missing or damaged.
  explicit SentencePieceModel(const std::string& path);
  ~SentencePieceModel();

  void encode(std::string_view text, std::vector<std::int64_t>& ids) const;
  /// Each id is from 0 to size() - 1.
  std::string decode(std::span<const std::int64_t> ids) const;
  std::int64_t size() const;
  std::optional<std::int64_t> id_of(std::string_view piece) const;
  std::string piece(std::int64_t id) const;
  /// True for pieces such as <s>, which stand for no text.
  bool is_control(std::int64_t id) const;
  std::optional<std::int64_t> bos() const;
  std::optional<std::int64_t> eos() const;

 private:
  struct Processor;
  std::unique_ptr<Processor> processor_;
};

}  // namespace penstock::text
