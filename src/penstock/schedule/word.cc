#include "penstock/schedule/word.h"

#include <algorithm>
#include <limits>

#include "penstock/base/error.h"
#include "penstock/schedule/text.h"

namespace penstock {
namespace {

constexpr std::int32_t no_limit = std::numeric_limits<std::int32_t>::max();

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || c == '_'; }

std::optional<Op> op_of(std::string_view letters) {
  for (int i = 0; i < op_count; ++i)
    if (letters == to_string(static_cast<Op>(i))) return static_cast<Op>(i);
  return std::nullopt;
}

/// Reads one word from left to right; the first error stops it.
class WordReader {
 public:
  explicit WordReader(std::string_view text) : text_(text) {}

  ParsedWord read() {
    const StageId stage(number(max_stages - 1));
    const std::size_t letters_at = at_;
    const std::string_view letters = take_letters();
    const std::optional<Op> op = op_of(letters);
    if (!op && letters.empty()) fail(letters_at, "expected the letters of a word, like F");
    if (!op)
      fail(letters_at, say(quoted(letters),
                           " is no word: there are F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, "
                           "REDUCE, NORM and STEP"));
    if (!error_.empty()) return result({});
    if (is_step_wide(*op)) return result(Instruction::step_wide(*op, stage));

    const MicroBatch first(number(no_limit));
    if (*op == Op::weight_grad && next_is('-')) return result(fused(stage, first));
    if (is_compute(*op)) return result(Instruction::compute(*op, stage, first));
    return result(message(*op, stage, first));
  }

 private:
  Instruction fused(StageId stage, MicroBatch first) {
    const std::size_t at = ++at_;
    const MicroBatch last(number(no_limit));
    if (last <= first) fail(at, "the range of a fused W must ascend");
    return Instruction::fused_weight_grad(stage, first, last);
  }

  Instruction message(Op op, StageId stage, MicroBatch i) {
    StageId peer = neighbour(op, stage);
    const std::size_t at = at_;
    const char sign = is_send(op) ? '>' : '<';
    if (next_is(sign)) {
      ++at_;
      peer = StageId(number(max_stages - 1));
      if (peer == neighbour(op, stage)) fail(at, say("the neighbour ", peer.value(), " is not named"));
    }
    if (peer.value() < 0 || peer.value() >= max_stages) {
      fail(at, say("stage ", stage.value(), " has no neighbour on that side"));
      return {};
    }
    const Instruction word = Instruction::message(op, stage, peer, i);
    if (!faces_peer(word))
      fail(at,
           say(to_string(op), " of stage ", stage.value(), " cannot have stage ", peer.value(), " at its other end"));
    return word;
  }

  bool next_is(char c) const { return at_ < text_.size() && text_[at_] == c; }

  std::int32_t number(std::int32_t limit) {
    const ParsedNumber parsed = parse_number(text_.substr(at_), limit);
    if (!parsed.value) fail(at_, parsed.error);
    at_ += parsed.length;
    return parsed.value.value_or(0);
  }

  std::string_view take_letters() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_letter(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  void fail(std::size_t at, std::string error) {
    if (!error_.empty()) return;
    error_ = std::move(error);
    error_at_ = at;
  }

  ParsedWord result(Instruction word) {
    if (at_ < text_.size()) fail(at_, say(quoted(text_.substr(at_)), " follows the word"));
    if (!error_.empty()) return {{}, error_, error_at_};
    return {word, {}, 0};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string error_;
  std::size_t error_at_ = 0;
};

}  // namespace

ParsedWord parse_word(std::string_view text) { return WordReader(text).read(); }

ParsedNumber parse_number(std::string_view text, std::int32_t limit) {
  std::size_t length = 0;
  std::int64_t value = 0;
  for (; length < text.size() && is_digit(text[length]); ++length) {
    if (length == 1 && text[0] == '0') return {{}, 0, "a number without leading zeros is expected"};
    value = value * 10 + (text[length] - '0');
    if (value > limit) return {{}, 0, say("a number of at most ", limit, " is expected")};
  }
  if (length == 0) return {{}, 0, "a number is expected"};
  return {static_cast<std::int32_t>(value), length, {}};
}

std::string quoted(std::string_view text) {
  constexpr std::size_t shown = 40;
  std::string result = "'";
  for (const char c : text.substr(0, shown)) result += c >= ' ' && c <= '~' ? c : '?';
  return result + (text.size() > shown ? "...'" : "'");
}

std::optional<std::string> out_of_range(const Instruction& word, std::size_t stages, std::int32_t micro_batches) {
  if (std::max(word.stage().index(), word.peer().index()) >= stages)
    return say(to_string(word), " names stage ", std::max(word.stage(), word.peer()).value(), ", but there are ",
               stages, " stages");
  if (word.last().value() >= micro_batches && !is_step_wide(word.op()))
    return say(to_string(word), " names micro-batch ", word.last().value(), ", but there are ", micro_batches,
               " micro-batches");
  return std::nullopt;
}

Instruction parse_instruction(std::string_view word) {
  const ParsedWord parsed = parse_word(word);
  require<DataError>(parsed.word.has_value(), quoted(word), ", column ", parsed.at + 1, ": ", parsed.error);
  return *parsed.word;
}

}  // namespace penstock
