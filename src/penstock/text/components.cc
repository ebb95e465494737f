#include "penstock/text/components.h"

#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/text/pattern.h"
#include "penstock/text/unicode.h"

namespace penstock::text {

std::string Normalizer::operator()(std::string text) const {
  for (const auto& step : steps_) text = step(std::move(text));
  return text;
}

void Normalizer::add(const StrictValue& component) {
  static const std::map<std::string, NormalForm> forms = {
      {"NFC", NormalForm::nfc}, {"NFD", NormalForm::nfd}, {"NFKC", NormalForm::nfkc}, {"NFKD", NormalForm::nfkd}};
  const std::string type = component["type"].text();
  if (const auto form = forms.find(type); form != forms.end()) {
    component.require_members({"type"});
    steps_.emplace_back([form = form->second](const std::string& text) { return normalized(text, form); });
  } else if (type == "Replace") {
    component.require_members({"type", "pattern", "content"});
    steps_.emplace_back([pattern = Pattern::read(component["pattern"]), content = component["content"].text()](
                            const std::string& text) { return replaced(text, pattern, content); });
  } else if (type == "Prepend") {
    component.require_members({"type", "prepend"});
    steps_.emplace_back(
        [prefix = component["prepend"].text()](std::string text) { return text.empty() ? text : prefix + text; });
  } else if (type == "Sequence") {
    component.require_members({"type", "normalizers"});
    for (const StrictValue& each : component["normalizers"].list()) add(each);
  } else {
    throw DataError(say(component.place(), " is a '", printable(type),
                        "': supported normalizers are NFC, NFD, NFKC, NFKD, Replace, Prepend and Sequence"));
  }
}

namespace {

constexpr const char* gpt2_pattern = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* punctuation = R"([!-/:-@\[-`{-~\p{P}])";

/// What becomes of the matches of a pattern.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Behavior behavior_of(const StrictValue& value) {
  const std::string name = value.text();
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  throw DataError(say(value.place(), " is '", printable(name), "': a behaviour is Removed, Isolated, ",
                      "MergedWithPrevious, MergedWithNext or Contiguous"));
}

struct Part {
  std::size_t begin, end;
  bool is_match;
};

/// The matches in `text` and what lies between them; the other way round if `invert`.
std::vector<Part> parts_of(std::string_view text, const Pattern& pattern, bool invert) {
  std::vector<Part> parts;
  std::size_t end = 0;
  while (const auto match = pattern.find(text, end)) {
    if (end < match->begin) parts.push_back({end, match->begin, invert});
    parts.push_back({match->begin, match->end, !invert});
    end = match->end;
  }
  if (end < text.size()) parts.push_back({end, text.size(), invert});
  return parts;
}

/// Joins neighbours as `behavior` says. Of matches side by side only the first joins what precedes it, or the last
/// what follows.
std::vector<Part> joined(const std::vector<Part>& parts, Behavior behavior) {
  std::vector<Part> result;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const bool is_after_match = i > 0 && parts[i - 1].is_match;
    const bool joins = i > 0 && (behavior == Behavior::merged_with_previous ? part.is_match && !is_after_match
                                 : behavior == Behavior::merged_with_next   ? !part.is_match && is_after_match
                                 : behavior == Behavior::contiguous         ? part.is_match == is_after_match
                                                                            : false);
    if (joins)
      result.back().end = part.end;
    else if (behavior != Behavior::removed || !part.is_match)
      result.push_back(part);
  }
  return result;
}

struct Splitting {
  Pattern pattern;
  Behavior behavior;
  bool invert = false;

  void operator()(std::string_view text, bool begins, const PieceSink& sink) const {
    if (behavior == Behavior::isolated) {  // the usual one: without lists
      std::size_t end = 0;
      const auto emit = [&](std::size_t begin, std::size_t stop) {
        if (begin < stop) sink(text.substr(begin, stop - begin), begins && begin == 0);
      };
      while (const auto match = pattern.find(text, end)) {
        emit(end, match->begin);
        emit(match->begin, match->end);
        end = match->end;
      }
      return emit(end, text.size());
    }
    for (const Part& part : joined(parts_of(text, pattern, invert), behavior))
      sink(text.substr(part.begin, part.end - part.begin), begins && part.begin == 0);
  }
};

bool is_set(const StrictValue& component, const char* key, bool otherwise) {
  return component.has_value(key) ? component[key].boolean() : otherwise;
}

}  // namespace

void PreTokenizer::run(std::size_t step, std::string_view text, bool begins, const PieceSink& word) const {
  if (text.empty()) return;
  if (step == steps_.size()) return word(text, begins);
  steps_[step](text, begins,
               [&](std::string_view piece, bool piece_begins) { run(step + 1, piece, piece_begins, word); });
}

void PreTokenizer::add(const StrictValue& component) {
  const std::string type = component["type"].text();
  require<DataError>(!is_byte_level_, component.place(), " is a '", printable(type),
                     "' after ByteLevel: ByteLevel must be the last pre-tokenizer");
  if (type == "Sequence") {
    component.require_members({"type", "pretokenizers"});
    for (const StrictValue& each : component["pretokenizers"].list()) add(each);
  } else if (type == "ByteLevel") {
    add_byte_level(component);
  } else if (type == "Metaspace") {
    add_metaspace(component);
  } else if (type == "Split") {
    component.require_members({"type", "pattern", "behavior", "invert"});
    steps_.emplace_back(Splitting{Pattern::read(component["pattern"]), behavior_of(component["behavior"]),
                                  is_set(component, "invert", false)});
  } else if (type == "Digits") {
    component.require_members({"type", "individual_digits"});
    const bool is_single = is_set(component, "individual_digits", false);
    steps_.emplace_back(Splitting{Pattern::regex(is_single ? R"(\p{N})" : R"(\p{N}+)"), Behavior::isolated});
  } else if (type == "Punctuation") {
    component.require_members({"type", "behavior"});
    steps_.emplace_back(Splitting{Pattern::regex(punctuation),
                                  component.has("behavior") ? behavior_of(component["behavior"]) : Behavior::isolated});
  } else if (type == "WhitespaceSplit") {
    component.require_members({"type"});
    steps_.emplace_back(Splitting{Pattern::regex(R"(\s)"), Behavior::removed});
  } else {
    throw DataError(say(component.place(), " is a '", printable(type), "': supported pre-tokenizers are ByteLevel, ",
                        "Split, Digits, Metaspace, Punctuation, WhitespaceSplit and Sequence"));
  }
}

void PreTokenizer::add_byte_level(const StrictValue& component) {
  component.require_members({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  is_byte_level_ = true;
  if (is_set(component, "add_prefix_space", true))
    steps_.emplace_back([](std::string_view text, bool begins, const PieceSink& sink) {
      if (text.starts_with(' ')) return sink(text, begins);
      const std::string prefixed = " " + std::string(text);
      sink(prefixed, begins);
    });
  if (is_set(component, "use_regex", true))
    steps_.emplace_back(Splitting{Pattern::regex(gpt2_pattern), Behavior::isolated});
}

void PreTokenizer::add_metaspace(const StrictValue& component) {
  component.require_members({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
  const std::string mark = component["replacement"].text();
  require<DataError>(!mark.empty(), component["replacement"].place(), " is empty");
  // Files of older versions have the flag add_prefix_space and no scheme.
  const std::string scheme = component.has("prepend_scheme")               ? component["prepend_scheme"].text()
                             : is_set(component, "add_prefix_space", true) ? "always"
                                                                           : "never";
  require<DataError>(scheme == "always" || scheme == "first" || scheme == "never", component.place(),
                     " has the prepend_scheme '", printable(scheme), "': always, first and never are possible");
  steps_.emplace_back(
      [mark, scheme, space = Pattern::literal(" ")](std::string_view text, bool begins, const PieceSink& sink) {
        std::string marked = replaced(std::string(text), space, mark);
        const bool prepends = scheme == "always" || (scheme == "first" && begins);
        if (prepends && !marked.starts_with(mark)) marked.insert(0, mark);
        sink(marked, begins);
      });
  if (is_set(component, "split", true))
    steps_.emplace_back(Splitting{Pattern::literal(mark), Behavior::merged_with_next});
}

namespace {

using Tokens = std::vector<std::string>;

void fuse(Tokens& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens = {all};
}

void decode_byte_level(Tokens& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += bytes_of(token).value_or(token);
  tokens = {repaired(all)};
}

/// The byte that a token such as <0x0A> stands for.
std::optional<char> byte_of_token(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned byte = 0;
  const char* const end = token.data() + 5;
  if (std::from_chars(token.data() + 3, end, byte, 16).ptr != end) return std::nullopt;
  return static_cast<char>(byte);
}

void decode_byte_tokens(Tokens& tokens) {
  Tokens result;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (utf8_prefix(bytes) == bytes.size())
      result.push_back(bytes);
    else  // one for each byte, as the package `tokenizers` does
      result.insert(result.end(), bytes.size(), "\xef\xbf\xbd");
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = byte_of_token(token)) {
      bytes += *byte;
      continue;
    }
    flush();
    result.push_back(std::move(token));
  }
  flush();
  tokens = std::move(result);
}

void strip(std::string& token, const std::string& content, std::int64_t at_begin, std::int64_t at_end) {
  for (; at_begin > 0 && token.starts_with(content); --at_begin) token.erase(0, content.size());
  for (; at_end > 0 && token.ends_with(content); --at_end) token.resize(token.size() - content.size());
}

/// Each `mark` becomes a space. With `has_prefix` the first token loses its marks, which the encoder has put there.
void decode_metaspace(Tokens& tokens, const Pattern& mark, bool has_prefix) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = replaced(tokens[i], mark, i == 0 && has_prefix ? "" : " ");
}

}  // namespace

std::string Decoder::operator()(Tokens tokens) const {
  for (const auto& step : steps_) step(tokens);
  fuse(tokens);
  return repaired(tokens.front());
}

void Decoder::add(const StrictValue& component) {
  const std::string type = component["type"].text();
  if (type == "ByteLevel") {
    component.require_members({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    steps_.emplace_back(decode_byte_level);
  } else if (type == "ByteFallback") {
    component.require_members({"type"});
    steps_.emplace_back(decode_byte_tokens);
  } else if (type == "Fuse") {
    component.require_members({"type"});
    steps_.emplace_back(fuse);
  } else if (type == "Strip") {
    component.require_members({"type", "content", "start", "stop"});
    constexpr std::int64_t most = 1'000'000;
    steps_.emplace_back([content = component["content"].text(), start = component["start"].whole(0, most),
                         stop = component["stop"].whole(0, most)](Tokens& tokens) {
      for (std::string& token : tokens) strip(token, content, start, stop);
    });
  } else if (type == "Replace") {
    component.require_members({"type", "pattern", "content"});
    steps_.emplace_back(
        [pattern = Pattern::read(component["pattern"]), content = component["content"].text()](Tokens& tokens) {
          for (std::string& token : tokens) token = replaced(token, pattern, content);
        });
  } else if (type == "Metaspace") {
    component.require_members({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
    const bool has_prefix = component.has("prepend_scheme")     ? component["prepend_scheme"].text() != "never"
                            : component.has("add_prefix_space") ? component["add_prefix_space"].boolean()
                                                                : true;
    steps_.emplace_back([mark = Pattern::literal(component["replacement"].text()), has_prefix](Tokens& tokens) {
      decode_metaspace(tokens, mark, has_prefix);
    });
  } else if (type == "Sequence") {
    component.require_members({"type", "decoders"});
    for (const StrictValue& each : component["decoders"].list()) add(each);
  } else {
    throw DataError(say(component.place(), " is a '", printable(type), "': supported decoders are ByteLevel, ",
                        "ByteFallback, Fuse, Strip, Replace, Metaspace and Sequence"));
  }
}

}  // namespace penstock::text
