// Texts as data sets: windows of tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "penstock/base/tensor.h"
#include "penstock/data/sample_source.h"
#include "penstock/data/vocabulary.h"

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

struct WindowOptions {
  std::int64_t length = 64;  // T
  /// True: each epoch draws as many windows as fit into the text, at random positions. False: consecutive windows, so
  /// that each token but the first is a target exactly once; the last window is padded with targets -100, which the
  /// loss ignores.
  bool random = true;
};

/// Makes samples of windows of `tokens` (int64 [N]): inputs [T], and as targets [T] the next tokens. Shares the memory
/// of `tokens`. Throws ConfigError for tokens of another shape or dtype, and for a length below 1 or not below N.
std::shared_ptr<const SampleSource> text_windows(torch::Tensor tokens, const WindowOptions& options);

}  // namespace penstock
