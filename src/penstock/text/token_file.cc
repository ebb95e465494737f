#include "penstock/text/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "penstock/base/error.h"

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read as they lie in memory");

constexpr std::string_view token_magic = "PSTOKENS";
constexpr std::uint32_t token_version = 1;
constexpr std::size_t own_header = 64;
constexpr std::size_t llmc_header = 1024;

/// The kinds of llm.c's files, by their first number.
struct LlmcKind {
  std::int32_t magic, version;
  std::size_t width;
};
constexpr LlmcKind llmc_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

template <class Number>
Number number_at(const std::byte* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

constexpr std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

TokenFile::TokenFile(std::span<const std::byte> bytes, std::string path) : path_(std::move(path)), bytes_(bytes) {}

TokenFile::~TokenFile() {
  if (is_mapped_) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::shared_ptr<const TokenFile> TokenFile::of_bytes(std::span<const std::byte> bytes, const std::string& name) {
  const std::shared_ptr<TokenFile> file(new TokenFile(bytes, name));
  const bool is_own =
      bytes.size() >= token_magic.size() && std::memcmp(bytes.data(), token_magic.data(), token_magic.size()) == 0;
  is_own ? file->read_own_header() : file->read_other_header();
  require<DataError>(file->tokens_ > 0, name, ": there are no tokens in it");
  return file;
}

std::shared_ptr<const TokenFile> TokenFile::open(const std::string& path) {
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require<DataError>(number >= 0, path, ": cannot be read: ", std::strerror(errno));
  struct stat status {};
  const bool is_file = ::fstat(number, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
  const auto size = is_file ? static_cast<std::size_t>(status.st_size) : 0;
  void* const memory = is_file ? ::mmap(nullptr, size, PROT_READ, MAP_SHARED, number, 0) : MAP_FAILED;
  ::close(number);
  require<DataError>(is_file, path, ": is empty, or is not a file: pass a file that penstock tokenize has written");
  require<DataError>(memory != MAP_FAILED, path, ": cannot be mapped into memory: ", std::strerror(errno));
  const std::span bytes(static_cast<const std::byte*>(memory), size);
  try {
    const auto file = of_bytes(bytes, path);
    std::const_pointer_cast<TokenFile>(file)->is_mapped_ = true;
    return file;
  } catch (...) {
    ::munmap(memory, size);
    throw;
  }
}

void TokenFile::read_own_header() {
  require<DataError>(bytes_.size() >= own_header, path_, ": the header of a token file has ", own_header,
                     " bytes, and this file has ", bytes_.size());
  const std::byte* const header = bytes_.data();
  const auto version = number_at<std::uint32_t>(header + 8);
  require<DataError>(version == token_version, path_, ": is a token file of version ", version, ": ", token_version,
                     " can be read");
  width_ = number_at<std::uint32_t>(header + 12);
  const auto tokens = number_at<std::uint64_t>(header + 16), documents = number_at<std::uint64_t>(header + 24);
  const auto vocabulary = number_at<std::uint64_t>(header + 32), flags = number_at<std::uint64_t>(header + 40);
  require<DataError>(width_ == 2 || width_ == 4, path_, ": tokens of ", width_, " bytes: 2 and 4 are possible");
  require<DataError>(vocabulary <= std::uint64_t{1} << 32 && flags <= 1, path_, ": the header has a vocabulary of ",
                     vocabulary, " and the number ", flags, " for flags: copy the file again");
  // No larger than the file each, so that their sum does not overflow.
  const std::uint64_t size = bytes_.size();
  const bool fits = tokens <= size && documents <= size;
  const std::uint64_t needed =
      fits ? own_header + padded(tokens * width_) + documents * 8 + (flags != 0 ? tokens : 0) : 0;
  require<DataError>(fits && needed == size, path_, ": ", tokens, " tokens in ", documents, " documents",
                     fits ? say(" need ", needed, " bytes") : std::string(" do not fit"), ", and the file has ", size,
                     ": copy the file again");
  tokens_ = static_cast<std::int64_t>(tokens);
  documents_ = static_cast<std::int64_t>(documents);
  vocabulary_ = static_cast<std::int64_t>(vocabulary);
  first_token_ = header + own_header;
  ends_ = first_token_ + padded(tokens * width_);
  if (flags != 0) flags_ = ends_ + documents * 8;
  std::int64_t previous = 0;
  for (std::int64_t document = 0; document < documents_; ++document) {
    const std::int64_t end = document_end(document);
    require<DataError>(end >= previous && end <= tokens_, path_, ": document ", document, " ends after ", end,
                       " tokens, and the one before it after ", previous, " of ", tokens_);
    previous = end;
  }
  require<DataError>(previous == tokens_, path_, ": the documents end after ", previous, " tokens of ", tokens_);
}

void TokenFile::read_other_header() {
  const std::byte* const header = bytes_.data();
  const auto first = bytes_.size() >= llmc_header ? number_at<std::int32_t>(header) : 0;
  for (const LlmcKind& kind : llmc_kinds) {
    if (first != kind.magic) continue;
    const auto version = number_at<std::int32_t>(header + 4);
    const auto tokens = number_at<std::uint32_t>(header + 8);
    require<DataError>(version == kind.version, path_, ": is a file of llm.c of version ", version, ": ", kind.version,
                       " can be read");
    require<DataError>(llmc_header + tokens * kind.width == bytes_.size(), path_, ": a file of llm.c with ", tokens,
                       " tokens has ", llmc_header + tokens * kind.width, " bytes, and this one has ", bytes_.size(),
                       ": copy the file again");
    width_ = kind.width;
    tokens_ = tokens;
    first_token_ = header + llmc_header;
    return;
  }
  require<DataError>(path_.ends_with(".bin"), path_, ": is not a token file: write one with penstock tokenize (",
                     "of nanoGPT's files, which have no header, the name must end in .bin)");
  require<DataError>(bytes_.size() % 2 == 0, path_, ": has ", bytes_.size(),
                     " bytes, which are not tokens of 2 bytes: copy the file again");
  tokens_ = static_cast<std::int64_t>(bytes_.size() / 2);
  first_token_ = header;
}

std::int64_t TokenFile::token(std::int64_t at) const {
  const std::byte* const place = first_token_ + static_cast<std::size_t>(at) * width_;
  return width_ == 2 ? std::int64_t{number_at<std::uint16_t>(place)} : std::int64_t{number_at<std::uint32_t>(place)};
}

std::int64_t TokenFile::document_end(std::int64_t document) const {
  // Beyond 2^63 it becomes negative, and is refused.
  return static_cast<std::int64_t>(number_at<std::uint64_t>(ends_ + 8 * document));
}

std::int64_t TokenFile::document_of(std::int64_t at) const {
  std::int64_t first = 0, count = documents_;
  while (count > 0) {  // the first document that ends after the token
    const std::int64_t half = count / 2;
    if (document_end(first + half) <= at) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

void TokenFile::require_tokens_below(std::int64_t vocabulary) const {
  for (std::int64_t at = 0; at < tokens_; ++at)
    require<DataError>(token(at) < vocabulary, path_, ": token ", at, " is ", token(at),
                       ", and the vocabulary of the model has ", vocabulary,
                       " entries: tokenize the text with the tokenizer of this model");
}

TokenFileWriter::TokenFileWriter(const std::string& path, std::int64_t vocabulary)
    : path_(path),
      partial_(path + ".partial-" + std::to_string(::getpid())),
      vocabulary_(vocabulary),
      width_(vocabulary <= 65536 ? 2 : 4) {
  std::error_code ignored;
  require<ConfigError>(!std::filesystem::is_directory(path, ignored), path,
                       ": is a folder, and a file is to be written");
  out_.open(partial_, std::ios::binary | std::ios::trunc);
  out_ << std::string(own_header, '\0');
  require<ConfigError>(out_.good(), path, ": cannot be written: ", std::strerror(errno));
}

TokenFileWriter::~TokenFileWriter() {
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

template <class Number>
void TokenFileWriter::write(Number number) {
  out_.write(reinterpret_cast<const char*>(&number), sizeof number);
}

void TokenFileWriter::add_document(std::span<const std::int64_t> tokens, const std::vector<bool>& is_learned) {
  for (const std::int64_t token : tokens) {
    require<DataError>(token >= 0 && token < vocabulary_, path_, ": token ", token, " of document ", ends_.size(),
                       " is outside of the vocabulary of ", vocabulary_);
    width_ == 2 ? write(static_cast<std::uint16_t>(token)) : write(static_cast<std::uint32_t>(token));
  }
  if (!is_learned.empty() && flags_.empty()) flags_.assign(static_cast<std::size_t>(tokens_), 1);
  if (!is_learned.empty())
    flags_.insert(flags_.end(), is_learned.begin(), is_learned.end());
  else if (!flags_.empty())
    flags_.insert(flags_.end(), tokens.size(), 1);
  learned_ += is_learned.empty() ? static_cast<std::int64_t>(tokens.size())
                                 : std::count(is_learned.begin(), is_learned.end(), true);
  tokens_ += static_cast<std::int64_t>(tokens.size());
  ends_.push_back(static_cast<std::uint64_t>(tokens_));
  require<Failure>(out_.good(), path_, ": cannot be written: ", std::strerror(errno));
}

void TokenFileWriter::finish() {
  const auto bytes = static_cast<std::uint64_t>(tokens_ * width_);
  out_ << std::string(padded(bytes) - bytes, '\0');
  for (const std::uint64_t end : ends_) write(end);
  out_.write(flags_.data(), static_cast<std::streamsize>(flags_.size()));
  out_.seekp(0);
  out_ << token_magic;
  write(token_version);
  write(static_cast<std::uint32_t>(width_));
  for (const std::int64_t number : {tokens_, documents(), vocabulary_, std::int64_t{flags_.empty() ? 0 : 1}})
    write(static_cast<std::uint64_t>(number));
  out_.close();
  require<Failure>(out_.good(), path_, ": cannot be written: ", std::strerror(errno));
  std::error_code problem;
  std::filesystem::rename(partial_, path_, problem);
  require<Failure>(!problem, path_, ": cannot be written: ", problem.message());
}

}  // namespace penstock
