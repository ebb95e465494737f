#include "penstock/data/text.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/data/data_files.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t least_bytes = 20;
constexpr std::size_t most_bytes = std::size_t{1} << 31;
constexpr const char* known_name = "tinyshakespeare.txt";

/// The text file in `folder`; empty if there is none.
fs::path find_in(const fs::path& folder) {
  std::error_code code;  // ignored: an unreadable folder counts as absent, and the caller reports it
  if (fs::is_regular_file(folder / known_name, code)) return folder / known_name;
  std::vector<fs::path> texts;
  for (const auto& entry : fs::directory_iterator(folder, code))
    if (entry.path().extension() == ".txt" && entry.is_regular_file(code)) texts.push_back(entry.path());
  return texts.size() == 1 ? texts.front() : fs::path();
}

fs::path find_text(const fs::path& path) {
  std::error_code code;
  if (fs::is_regular_file(path, code)) return path;
  for (const fs::path& folder : {path, path / "text"})
    if (const fs::path found = find_in(folder); !found.empty()) return found;
  throw DataError(say("no text in '", path.string(),
                      "': pass a file, or a folder that contains, itself or in its folder 'text', ", known_name,
                      " or a single .txt file"));
}

torch::Tensor tensor_of(const std::vector<std::int64_t>& tokens) {
  torch::Tensor tensor = torch::empty({static_cast<std::int64_t>(tokens.size())}, torch::kInt64);
  std::copy(tokens.begin(), tokens.end(), tensor.data_ptr<std::int64_t>());
  return tensor;
}

}  // namespace

TextSet load_text(const std::string& path) {
  const fs::path file = find_text(path);
  const std::vector<std::uint8_t> bytes = read_whole_file(file.string(), most_bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  require<DataError>(text.size() >= least_bytes, "'", file.string(), "' has ", text.size(),
                     " bytes: a text of at least ", least_bytes, " is needed to learn from");
  TextSet set{Vocabulary::of(text), {}, {}};
  const torch::Tensor tokens = tensor_of(set.vocabulary.encode(text));
  const std::int64_t trained = tokens.size(0) - tokens.size(0) / 10;
  set.train = tokens.narrow(0, 0, trained);
  set.validation = tokens.narrow(0, trained, tokens.size(0) - trained);
  return set;
}

TokenSet load_tokens(const std::string& path, std::int64_t vocabulary) {
  const auto file = TokenFile::open(path);
  require<DataError>(file->size() >= std::int64_t{least_bytes}, path, ": has ", file->size(), " tokens: at least ",
                     least_bytes, " are needed to learn from");
  if (file->vocabulary())
    require<DataError>(*file->vocabulary() <= vocabulary, path, ": is made for a vocabulary of ", *file->vocabulary(),
                       " entries, and the model has ", vocabulary,
                       ": tokenize the text with the tokenizer of this model");
  else
    file->require_tokens_below(vocabulary);
  std::int64_t trained = file->size() - file->size() / 10;
  if (file->documents() > 1) {
    const std::int64_t document = file->document_of(trained);
    // A long last document is left to training, unless it is all that there is.
    const std::int64_t end = file->document_end(document);
    const std::int64_t begin = document > 0 ? file->document_end(document - 1) : 0;
    if (end < file->size())
      trained = end;
    else if (begin > 0)
      trained = begin;
  }
  return {vocabulary, {file, 0, trained}, {file, trained, file->size()}};
}

namespace {

constexpr std::int64_t padding_target = -100;

/// Mixes three numbers into one.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) {
  std::uint64_t state = 0;
  for (const std::uint64_t part : {seed, epoch, sample}) state = Splitmix(state ^ part).next();
  return state;
}

/// The tokens of a text in memory.
class TensorTokens {
 public:
  explicit TensorTokens(const torch::Tensor& tokens) {
    require<ConfigError>(tokens.defined() && tokens.dim() == 1 && tokens.scalar_type() == torch::kInt64,
                         "a text is [N] of int64");
    tokens_ = tokens.to(torch::kCPU).contiguous();
  }

  std::int64_t size() const { return tokens_.size(0); }
  void copy(std::int64_t begin, std::span<std::int64_t> tokens) const {
    std::copy_n(tokens_.const_data_ptr<std::int64_t>() + begin, tokens.size(), tokens.begin());
  }
  bool is_learned(std::int64_t) const { return true; }
  void count_documents(std::int64_t, std::span<const std::int64_t>, std::span<std::int64_t>) const {}

 private:
  torch::Tensor tokens_;
};

/// A part of a token file.
class FileTokens {
 public:
  FileTokens(TokenRange range, std::optional<std::int64_t> end_token)
      : range_(std::move(range)), end_token_(end_token) {}

  std::int64_t size() const { return range_.end - range_.begin; }
  void copy(std::int64_t begin, std::span<std::int64_t> tokens) const {
    // A damaged file may have tokens outside of the vocabulary that it names.
    const std::int64_t limit = range_.file->vocabulary().value_or(std::numeric_limits<std::int64_t>::max());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::int64_t at = range_.begin + begin + static_cast<std::int64_t>(i);
      tokens[i] = range_.file->token(at);
      require<DataError>(tokens[i] < limit, range_.file->path(), ": token ", at, " is ", tokens[i],
                         ", and the file is for a vocabulary of ", limit, " entries: copy the file again");
    }
  }
  bool is_learned(std::int64_t at) const { return range_.file->is_learned(range_.begin + at); }

  /// Numbers the documents of `tokens`, which begin at `begin`, from 0.
  void count_documents(std::int64_t begin, std::span<const std::int64_t> tokens,
                       std::span<std::int64_t> documents) const {
    const TokenFile& file = *range_.file;
    std::int64_t number = 0, document = file.document_of(range_.begin + begin);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::int64_t at = range_.begin + begin + static_cast<std::int64_t>(i);
      const bool is_stored = file.documents() > 0;
      bool is_new = !is_stored && i > 0 && tokens[i - 1] == end_token_;
      while (is_stored && at >= file.document_end(document)) {  // several: documents may be empty
        ++document;
        is_new = true;
      }
      documents[i] = number += is_new ? 1 : 0;
    }
  }

 private:
  TokenRange range_;
  std::optional<std::int64_t> end_token_;
};

template <class Tokens>
class TextWindows : public SampleSource {
 public:
  TextWindows(Tokens tokens, const WindowOptions& options) : tokens_(std::move(tokens)), options_(options) {
    require<ConfigError>(options.length >= 1 && options.length < tokens_.size(), "windows of ", options.length,
                         " tokens out of ", tokens_.size(), ": pass 1 to ", tokens_.size() - 1);
  }

  std::int64_t size() const override {
    const std::int64_t targets = tokens_.size() - 1;
    return options_.random ? targets / options_.length : (targets + options_.length - 1) / options_.length;
  }

  Batch make(const Request& request) const override {
    const auto count = static_cast<std::int64_t>(request.samples.size());
    const std::int64_t length = options_.length;
    std::vector<torch::Tensor> inputs;
    for (int i = 0; i < (options_.documents ? 2 : 1); ++i)
      inputs.push_back(torch::empty({request.inputs.size(), length}, torch::kInt64));
    torch::Tensor targets = torch::empty({count, length}, torch::kInt64);
    // A window and the token after it, padded.
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(length) + 1), documents(tokens.size());
    for (std::int64_t row = 0; row < count; ++row) {
      const std::int64_t begin = begin_of(request, request.samples[static_cast<std::size_t>(row)]);
      const std::int64_t there = std::min(length + 1, tokens_.size() - begin);
      const std::span known(tokens.data(), static_cast<std::size_t>(there));
      std::fill(tokens.begin(), tokens.end(), 0);
      std::fill(documents.begin(), documents.end(), 0);
      tokens_.copy(begin, known);
      if (options_.documents) {
        tokens_.count_documents(begin, known, documents);
        std::fill(documents.begin() + there, documents.end(), documents[known.size() - 1]);
      }
      if (row >= request.inputs.begin && row < request.inputs.end) {
        const std::int64_t place = (row - request.inputs.begin) * length;
        std::copy_n(tokens.begin(), length, inputs[0].data_ptr<std::int64_t>() + place);
        if (options_.documents) std::copy_n(documents.begin(), length, inputs[1].data_ptr<std::int64_t>() + place);
      }
      auto* const target = targets.data_ptr<std::int64_t>() + row * length;
      for (std::int64_t t = 0; t < length; ++t) {
        const auto next = static_cast<std::size_t>(t) + 1;
        const bool is_target =
            t + 1 < there && tokens_.is_learned(begin + t + 1) && documents[next] == documents[next - 1];
        target[t] = is_target ? tokens[next] : padding_target;
      }
    }
    return {std::move(inputs), std::move(targets)};
  }

 private:
  std::int64_t begin_of(const Request& request, std::int64_t sample) const {
    if (!options_.random) return sample * options_.length;
    // The bias of the remainder is below N / 2^64.
    const auto places = static_cast<std::uint64_t>(tokens_.size() - options_.length);
    const std::uint64_t number = mixed(request.seed, request.epoch, static_cast<std::uint64_t>(sample));
    return static_cast<std::int64_t>(number % places);
  }

  Tokens tokens_;
  WindowOptions options_;
};

}  // namespace

std::shared_ptr<const SampleSource> text_windows(torch::Tensor tokens, const WindowOptions& options) {
  require<ConfigError>(!options.documents, "a text in memory has no documents: tokenize it into a file");
  return std::make_shared<TextWindows<TensorTokens>>(TensorTokens(tokens), options);
}

std::shared_ptr<const SampleSource> text_windows(const TokenRange& tokens, const WindowOptions& options) {
  require<ConfigError>(tokens.file != nullptr, "a range of tokens without a file: take one of load_tokens()");
  require<ConfigError>(!options.documents || options.end_token || tokens.file->documents() > 0, tokens.file->path(),
                       " does not store the ends of its documents: pass the token that ends them");
  return std::make_shared<TextWindows<FileTokens>>(FileTokens(tokens, options.end_token), options);
}

}  // namespace penstock
