// Texts and token files as data sets: windows of tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "penstock/base/tensor.h"
#include "penstock/data/sample_source.h"
#include "penstock/data/vocabulary.h"
#include "penstock/text/token_file.h"

namespace penstock {

/// A text as tokens, split into a training part and the last tenth for validation.
struct TextSet {
  Vocabulary vocabulary;
  torch::Tensor train;       // [tokens] of int64
  torch::Tensor validation;  // likewise
};

/// Loads a text: the file `path` or, if `path` is a directory, tinyshakespeare.txt or else the only .txt file in it or
/// in its folder `text`. Throws DataError, which names the files searched for, or for a text of fewer than 20 bytes.
TextSet load_text(const std::string& path);

/// Consecutive tokens of a file.
struct TokenRange {
  std::shared_ptr<const TokenFile> file;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// A file of tokens for a model whose vocabulary has `vocabulary` entries, split into a training part and about the last
/// tenth for validation: between two documents if the file stores them.
struct TokenSet {
  std::int64_t vocabulary = 0;
  TokenRange train;
  TokenRange validation;
};

/// Opens a token file; the tokens are read as samples are made. Throws DataError, which names the file and the position,
/// for a token outside of the vocabulary, for a file that another vocabulary was made for, and for fewer than 20
/// tokens. A file that does not name its vocabulary is read once for that.
TokenSet load_tokens(const std::string& path, std::int64_t vocabulary);

struct WindowOptions {
  std::int64_t length = 64;  // T
  /// True: each epoch draws as many windows as fit into the text, at random positions. False: consecutive windows, so
  /// that each token but the first is a target exactly once; the last window is padded with targets -100, which the
  /// loss ignores.
  bool random = true;
  /// For a token file: true adds a second input [T], which counts the documents in the window from 0, and excludes the
  /// first token of a document from the targets, because nothing of its document precedes it.
  bool documents = false;
  /// The token that ends a document, for a file that does not store the ends.
  std::optional<std::int64_t> end_token = {};
};

/// Makes samples of windows of `tokens` (int64 [N]): inputs [T], and as targets [T] the next tokens. Shares the memory
/// of `tokens`. Throws ConfigError for tokens of another shape or dtype, and for a length below 1 or not below N.
std::shared_ptr<const SampleSource> text_windows(torch::Tensor tokens, const WindowOptions& options);
/// The same for a part of a token file. Tokens that are not targets of the loss (TokenFile::is_learned) become -100.
std::shared_ptr<const SampleSource> text_windows(const TokenRange& tokens, const WindowOptions& options);

}  // namespace penstock
