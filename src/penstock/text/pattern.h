// Regular expressions of tokenizer.json, which are written for Oniguruma, executed by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/base/json.h"

namespace penstock::text {

/// A range of bytes of a text.
struct Match {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// A compiled pattern. Immutable and thread-safe; copies share the program.
class Pattern {
 public:
  /// Throws DataError, which names the construct, for a pattern that is invalid, or that the two libraries could read
  /// differently.
  static Pattern regex(const std::string& text);
  /// Matches `text` itself.
  static Pattern literal(std::string_view text);

  /// Reads {"String": ...} or {"Regex": ...}. Throws DataError, which names the place.
  static Pattern read(const StrictValue& component);

  /// The first match in `text`, which is valid UTF-8, at or after the byte `from`; matches without characters are
  /// ignored. Throws Failure if the pattern takes too many steps.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  struct Program;
  explicit Pattern(const std::string& translated);

  std::shared_ptr<const Program> program_;
};

/// `text` with `content` in place of each match.
std::string replaced(const std::string& text, const Pattern& pattern, const std::string& content);

}  // namespace penstock::text
