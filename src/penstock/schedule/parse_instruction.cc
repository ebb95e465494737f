#include "penstock/schedule/parse_instruction.h"

#include <algorithm>

#include "penstock/base/error.h"

namespace penstock {
namespace {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || c == '_'; }

std::optional<Op> op_of(std::string_view letters) {
  for (int i = 0; i < op_count; ++i)
    if (letters == to_string(static_cast<Op>(i))) return static_cast<Op>(i);
  return std::nullopt;
}

/// Parses one instruction from left to right; the result has the first error.
class InstructionReader {
 public:
  explicit InstructionReader(std::string_view text) : text_(text) {}

  ParsedInstruction read() {
    const StageId stage(number(max_stages - 1));
    const std::size_t letters_at = at_;
    const std::string_view letters = take_letters();
    const std::optional<Op> op = op_of(letters);
    if (!op && letters.empty()) fail(letters_at, "expected the letters of an instruction, like F");
    if (!op)
      fail(letters_at, say(quoted(letters),
                           " is not an instruction: there are F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, "
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
    const Instruction instruction = Instruction::message(op, stage, peer, i);
    if (!faces_peer(instruction))
      fail(at,
           say(to_string(op), " of stage ", stage.value(), " cannot have stage ", peer.value(), " at its other end"));
    return instruction;
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

  ParsedInstruction result(Instruction instruction) {
    if (at_ < text_.size()) fail(at_, say(quoted(text_.substr(at_)), " follows the instruction"));
    if (!error_.empty()) return {{}, error_, error_at_};
    return {instruction, {}, 0};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string error_;
  std::size_t error_at_ = 0;
};

}  // namespace

ParsedInstruction try_parse_instruction(std::string_view text) { return InstructionReader(text).read(); }

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

std::optional<std::string> out_of_range(const Instruction& instruction, std::size_t stages,
                                        std::int32_t micro_batches) {
  if (std::max(instruction.stage().index(), instruction.peer().index()) >= stages)
    return say(to_string(instruction), " names stage ", std::max(instruction.stage(), instruction.peer()).value(),
               ", but there are ", stages, " stages");
  if (instruction.last().value() >= micro_batches && !is_step_wide(instruction.op()))
    return say(to_string(instruction), " names micro-batch ", instruction.last().value(), ", but there are ",
               micro_batches, " micro-batches");
  return std::nullopt;
}

}  // namespace penstock
