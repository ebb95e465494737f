#include "penstock/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/text/unicode.h"

namespace penstock::text {
namespace {

// PCRE2 also counts U+180E as white space.
constexpr const char* white_space =
    R"(\t-\r\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

/// Writes the constructs that both libraries read in the same way, and \s as a class.
class Translation {
 public:
  explicit Translation(const std::string& text) : text_(text) {}

  std::string result() {
    while (at_ < text_.size()) step();
    return out_;
  }

 private:
  bool is_next(std::string_view what) const { return std::string_view(text_).substr(at_).starts_with(what); }

  [[noreturn]] void refuse(std::size_t length) const {
    throw DataError(say("the pattern '", printable(text_), "' has '", printable(text_.substr(at_, length)),
                        "' at byte ", at_, ", which is not supported"));
  }

  void copy(std::size_t length) {
    out_.append(text_, at_, length);
    at_ += length;
  }

  void step() {
    const char c = text_[at_];
    if (c == '\\') return escape();
    if (in_class_) {
      if (c == '[' || is_next("&&")) refuse(2);
      in_class_ = c != ']';
      return copy(1);
    }
    if (c == '[') {
      in_class_ = true;
      copy(is_next("[^") ? 2 : 1);
      if (is_next("]")) refuse(1);
      return;
    }
    if (c == '(') return group();
    if (c == '{') return repetition();
    // '^' and '$' match at other places in Ruby's syntax.
    if (c == '^' || c == '$') refuse(1);
    copy(1);
  }

  void escape() {
    if (at_ + 1 >= text_.size()) refuse(1);
    const char c = text_[at_ + 1];
    if (c == 's' || c == 'S') {
      if (in_class_ && c == 'S') refuse(2);
      out_ += in_class_ ? white_space : say(c == 's' ? "[" : "[^", white_space, "]");
      at_ += 2;
      return;
    }
    if (c == 'p' || c == 'P') {
      const std::size_t end = text_.find('}', at_);
      if (end == std::string::npos || text_[at_ + 2] != '{') refuse(3);
      return copy(end + 1 - at_);
    }
    if (is_letter_or_digit(c) && std::string_view("rntfdD").find(c) == std::string_view::npos) refuse(2);
    copy(2);
  }

  void group() {
    if (!is_next("(?")) return copy(1);
    for (const std::string_view known : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"})
      if (is_next(known)) return copy(known.size());
    refuse(4);
  }

  void repetition() {
    const std::size_t end = text_.find('}', at_);
    if (end == std::string::npos || text_.find_first_not_of("0123456789,", at_ + 1) != end || is_next("{,")) refuse(2);
    copy(end + 1 - at_);
    if (is_next("+")) refuse(1);  // possessive in PCRE2 only
  }

  const std::string& text_;
  std::size_t at_ = 0;
  std::string out_;
  bool in_class_ = false;
};

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct Pattern::Program {
  pcre2_code* code = nullptr;
  ~Program() { pcre2_code_free(code); }
};

Pattern::Pattern(const std::string& translated) {
  int error = 0;
  PCRE2_SIZE at = 0;
  auto program = std::make_shared<Program>();
  program->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (!program->code) {
    std::array<PCRE2_UCHAR, 256> reason{};
    pcre2_get_error_message(error, reason.data(), reason.size());
    throw DataError(say("the pattern '", printable(translated), "' is invalid at byte ", at, ": ",
                        reinterpret_cast<const char*>(reason.data())));
  }
  pcre2_jit_compile(program->code, PCRE2_JIT_COMPLETE);  // without it (another processor) the same matches, slower
  program_ = std::move(program);
}

Pattern Pattern::regex(const std::string& text) {
  require<DataError>(utf8_prefix(text) == text.size(), "the pattern '", printable(text), "' is not UTF-8");
  return Pattern(Translation(text).result());
}

Pattern Pattern::literal(std::string_view text) {
  require<DataError>(!text.empty(), "a pattern without characters");
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = byte >= 0x7f || byte < 0x20 || is_letter_or_digit(c);
    if (!is_plain) escaped += '\\';
    escaped += c;
  }
  return Pattern(escaped);
}

Pattern Pattern::read(const StrictValue& component) {
  component.require_members({"String", "Regex"});
  try {
    return component.has("String") ? literal(component["String"].text()) : regex(component["Regex"].text());
  } catch (const DataError& error) {
    throw DataError(say(component.place(), ": ", error.what()));
  }
}

std::optional<Match> Pattern::find(std::string_view text, std::size_t from) const {
  thread_local const std::unique_ptr<pcre2_match_data, FreeMatch> found(pcre2_match_data_create(1, nullptr));
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  while (from < text.size()) {
    // The text is known to be UTF-8; the check would take quadratic time.
    int result = pcre2_match(program_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, found.get(), nullptr);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT)
      result = pcre2_match(program_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, found.get(),
                           nullptr);
    if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
    require<Failure>(result >= 0, "a pattern of the tokenizer fails on a text of ", text.size(), " bytes: error ",
                     result, " of PCRE2");
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(found.get());
    if (ends[0] < ends[1]) return Match{ends[0], ends[1]};
    from = std::max(ends[0], ends[1]) + (ends[0] < text.size() ? first_character(text.substr(ends[0])).bytes : 1);
  }
  return std::nullopt;
}

std::string replaced(const std::string& text, const Pattern& pattern, const std::string& content) {
  std::string result;
  std::size_t end = 0;
  while (const auto match = pattern.find(text, end)) {
    result.append(text, end, match->begin - end).append(content);
    end = match->end;
  }
  return result.append(text, end);
}

}  // namespace penstock::text
