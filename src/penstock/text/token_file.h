// Files of tokens, which are mapped into memory: our own format, and the formats of llm.c and nanoGPT.
//
// Version 1, all numbers little-endian:
//    0  8 bytes      "PSTOKENS"
//    8  uint32       1, the version
//   12  uint32       W, the bytes of a token: 2 or 4
//   16  uint64       N, the number of tokens
//   24  uint64       D, the number of documents
//   32  uint64       the size of the vocabulary: each token is less
//   40  uint64       1 if flags follow, else 0
//   48  16 bytes     0
//   64  N x W bytes  the tokens of all documents, one document after the other; zeros up to a multiple of 8 bytes
//       D x uint64   for each document the number of tokens up to its end; the last one is N
//       N bytes      flags, if any: 1 for a token that the loss counts as a target, else 0
// A file of llm.c is known by its first number (20240520: uint16, 20240801: uint32), one of nanoGPT, uint16 without a
// header, by its name, which ends in .bin. Both lack documents and flags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock {

/// The tokens of a file, read as they are asked for. Immutable and thread-safe. The file must not become shorter while
/// it is used: the system would end the process.
class TokenFile {
 public:
  /// Throws DataError, which names the file, if it is missing, damaged or of another kind.
  static std::shared_ptr<const TokenFile> open(const std::string& path);
  /// Of bytes in memory, which must outlive it; `name` stands for the path.
  static std::shared_ptr<const TokenFile> of_bytes(std::span<const std::byte> bytes, const std::string& name);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t size() const { return tokens_; }
  /// From 0 to size() - 1 each.
  std::int64_t token(std::int64_t at) const;
  /// True for all tokens of a file without flags.
  bool is_learned(std::int64_t at) const { return !flags_ || flags_[at] != std::byte{0}; }

  /// 0 if the file does not store documents.
  std::int64_t documents() const { return documents_; }
  /// The number of tokens up to the end of a document.
  std::int64_t document_end(std::int64_t document) const;
  /// The document that contains the token; 0 if the file does not store them.
  std::int64_t document_of(std::int64_t at) const;

  /// The vocabulary that the file names; none in a file of another program.
  std::optional<std::int64_t> vocabulary() const { return vocabulary_; }
  /// Throws DataError, which names the position, for a token that is not less than `vocabulary`. Reads the whole file.
  void require_tokens_below(std::int64_t vocabulary) const;

 private:
  TokenFile(std::span<const std::byte> bytes, std::string path);
  void read_own_header();
  void read_other_header();

  std::string path_;
  std::span<const std::byte> bytes_;
  bool is_mapped_ = false;
  std::size_t width_ = 2;
  const std::byte* first_token_ = nullptr;
  const std::byte* ends_ = nullptr;
  const std::byte* flags_ = nullptr;
  std::int64_t tokens_ = 0, documents_ = 0;
  std::optional<std::int64_t> vocabulary_;
};

/// Writes a file of version 1. What it has written is in FILE.partial-PID, which finish() renames.
class TokenFileWriter {
 public:
  /// Throws ConfigError if the file cannot be made. Tokens take 2 bytes if the vocabulary has at most 65,536 entries.
  TokenFileWriter(const std::string& path, std::int64_t vocabulary);
  /// Removes an unfinished file.
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  /// Appends a document. `is_learned` has an entry for each token, or none if all are targets. Throws DataError for a
  /// token outside of the vocabulary, and Failure if writing fails.
  void add_document(std::span<const std::int64_t> tokens, const std::vector<bool>& is_learned = {});
  /// Completes the file. Throws Failure if writing fails.
  void finish();

  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return static_cast<std::int64_t>(ends_.size()); }
  std::int64_t learned() const { return learned_; }
  std::int64_t width() const { return width_; }

 private:
  template <class Number>
  void write(Number number);

  std::string path_, partial_;
  std::ofstream out_;
  std::int64_t vocabulary_, width_, tokens_ = 0, learned_ = 0;
  std::vector<std::uint64_t> ends_;
  std::vector<char> flags_;  // empty while all tokens are learned
};

}  // namespace penstock
