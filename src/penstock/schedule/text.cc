#include "penstock/schedule/text.h"

#include <algorithm>
#include <filesystem>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/schedule/parse_instruction.h"
#include "penstock/schedule/torch_csv.h"
#include "penstock/schedule/violation.h"

namespace penstock {
namespace {

constexpr std::string_view format = "penstock schedule ";
constexpr std::int32_t version = 1;
constexpr std::string_view first_line = "penstock schedule 1";
constexpr std::string_view overlap = "OVERLAP_F_B";

constexpr bool ends_instruction(char c) { return std::string_view(" \r\n;()#").find(c) != std::string_view::npos; }

/// The position of the first line of `text` that is neither empty nor a comment.
std::size_t first_line_of(std::string_view text) {
  std::size_t at = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t word = text.find_first_not_of(" \r", begin);
    if (word == std::string_view::npos || (text[word] != '\n' && text[word] != '#')) break;
    const std::size_t end = text.find('\n', word);
    begin = end == std::string_view::npos ? text.size() : end + 1;
    at = begin;
  }
  return at;
}

class ScheduleReader {
 public:
  explicit ScheduleReader(std::string_view text) : text_(text) {}

  Schedule read() {
    at_ = first_line_of(text_);
    require_version();
    expect(first_line, "the first line must be 'penstock schedule 1'");
    end_line();
    schedule_.name = name();
    const std::int32_t ranks = header("ranks", no_limit);
    const std::int32_t stages = header("stages", max_stages);
    schedule_.micro_batches = header("micro_batches", no_limit);
    placements({.ranks = ranks, .stages = stages});
    // No list is allocated by the numbers of the header: a corrupt file must not exhaust the memory.
    for (std::int32_t rank = 0; rank < ranks; ++rank) schedule_.orders.push_back(order(rank));
    if (at_ != text_.size()) fail(at_, say("trailing text after the last of ", ranks, " ranks"));
    return std::move(schedule_);
  }

 private:
  struct Sizes {
    std::int32_t ranks;
    std::int32_t stages;
  };

  void require_version() const {
    const std::string_view rest = text_.substr(at_);
    if (!rest.starts_with(format)) return;
    const ParsedNumber number = parse_number(rest.substr(format.size()), no_limit);
    if (number.value && *number.value != version)
      fail(at_ + format.size(),
           say("the schedule is of version ", *number.value, ", and this Penstock reads version ", version));
  }

  std::string name() {
    expect("name", "expected the header line 'name'");
    if (!take(' ')) {
      end_line();
      return {};
    }
    const std::size_t end = text_.find('\n', at_);
    std::string_view line = text_.substr(at_, end == std::string_view::npos ? end : end - at_);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const std::size_t bad = line.find('\r'); bad != std::string_view::npos)
      fail(at_ + bad, "a carriage return within a line");
    at_ += line.size();
    end_line();
    return std::string(line);
  }

  std::int32_t header(std::string_view key, std::int32_t limit) {
    expect(key, say("expected the header line '", key, "'"));
    spaces("expected a space");
    const std::size_t begin = at_;
    const std::int32_t value = number(limit);
    if (value < 1) fail(begin, say(key, " must be at least 1"));
    end_line();
    return value;
  }

  /// One line for each pipeline, and if there are several, the pipelines of the micro-batches.
  void placements(Sizes sizes) {
    schedule_.rank_of_stage = placement(sizes);
    while (is_next("rank_of_stage")) schedule_.more_pipelines.push_back(placement(sizes));
    if (schedule_.more_pipelines.empty()) return;
    expect("pipeline_of_micro_batch", "expected the header line 'pipeline_of_micro_batch'");
    for (std::int32_t i = 0; i < schedule_.micro_batches; ++i) {
      spaces("expected a space and the pipeline of micro-batch " + std::to_string(i));
      schedule_.pipeline_of.push_back(number(schedule_.pipeline_count() - 1));
    }
    end_line();
  }

  std::vector<Rank> placement(Sizes sizes) {
    std::vector<Rank> ranks;
    expect("rank_of_stage", "expected the header line 'rank_of_stage'");
    for (std::int32_t s = 0; s < sizes.stages; ++s) {
      spaces("expected a space and the rank of stage " + std::to_string(s));
      ranks.push_back(Rank(number(sizes.ranks - 1)));
    }
    end_line();
    return ranks;
  }

  Order order(std::int32_t rank) {
    expect("rank", say("expected the line of rank ", rank));
    spaces("expected a space and the rank");
    const std::size_t begin = at_;
    if (number(no_limit) != rank) fail(begin, say("expected the line of rank ", rank));
    expect(":", "expected a colon");
    Order order;
    while (take_spaces() && at_ < text_.size() && text_[at_] != '\r' && text_[at_] != '\n' && text_[at_] != '#') {
      if (take('('))
        overlapping(order);
      else
        order.push_back(instruction());
    }
    end_line();
    return order;
  }

  /// The rest of an overlap pair after its '(': F, optional messages, then B or I.
  void overlapping(Order& order) {
    const std::size_t begin = at_;
    const Instruction half = instruction();
    if (half.op() != Op::forward) fail(begin, "the first half of an overlap must be F");
    order.push_back(half.overlapping_next());
    for (bool open = true; open;) {
      expect(";", "expected ';' and the other half of the overlap");
      const std::size_t at = at_;
      order.push_back(instruction());
      const Op op = order.back().op();
      if (!is_message(op) && op != Op::backward && op != Op::input_grad)
        fail(at, "the other half of an overlap must be B or I, with only messages between");
      open = is_message(op);
    }
    expect(")", "expected ')' after the two halves");
    expect(overlap, "expected 'OVERLAP_F_B'");
  }

  Instruction instruction() {
    std::size_t length = 0;
    while (at_ + length < text_.size() && !ends_instruction(text_[at_ + length])) ++length;
    const ParsedInstruction parsed = try_parse_instruction(text_.substr(at_, length));
    if (!parsed.instruction) fail(at_ + parsed.at, parsed.error);
    if (auto reason = out_of_range(*parsed.instruction, schedule_.rank_of_stage.size(), schedule_.micro_batches))
      fail(at_, *reason);
    at_ += length;
    return *parsed.instruction;
  }

  std::int32_t number(std::int32_t limit) {
    const ParsedNumber parsed = parse_number(text_.substr(at_), limit);
    if (!parsed.value) fail(at_, parsed.error);
    at_ += parsed.length;
    return *parsed.value;
  }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool is_next(std::string_view what) const { return text_.substr(at_, what.size()) == what; }

  void expect(std::string_view what, const std::string& error) {
    if (!is_next(what)) fail(at_, error);
    at_ += what.size();
  }

  bool take_spaces() {
    const std::size_t begin = at_;
    while (take(' ')) {
    }
    return at_ > begin;
  }
  void spaces(const std::string& error) {
    if (!take_spaces()) fail(at_, error);
  }

  /// The rest of a line, which may be a comment, and the comments and empty lines after it.
  void end_line() {
    const std::size_t end = at_;
    take_spaces();
    if (at_ < text_.size() && text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size());
    take('\r');
    if (!take('\n')) fail(end, at_ == text_.size() ? "the text ends within a line" : "expected the end of the line");
    at_ += first_line_of(text_.substr(at_));
  }

  [[noreturn]] void fail(std::size_t at, const std::string& error) const {
    const std::string_view before = text_.substr(0, at);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t start = before.rfind('\n');
    const std::size_t column = start == std::string_view::npos ? at + 1 : at - start;
    throw DataError(say("line ", line, ", column ", column, ": ", error));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Schedule schedule_;
};

/// Throws for a schedule that the text format cannot represent, so that read_schedule() accepts every written text.
void check_writable(const Schedule& schedule) {
  const auto refuse = [](const auto&... parts) {
    throw ScheduleError(say("this schedule cannot be written: ", parts...));
  };
  if (schedule.name.find_first_of("\n\r") != std::string::npos) refuse("its name has several lines");
  if (schedule.orders.empty()) refuse("it has no ranks");
  if (const auto violation = bad_header(schedule)) refuse(violation->reason);
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank) {
    for (const Instruction& instruction : schedule.orders[rank]) {
      if (auto reason = out_of_range(instruction, schedule.rank_of_stage.size(), schedule.micro_batches))
        refuse(*reason);
      if (instruction.first().value() < 0 || instruction.first() > instruction.last())
        refuse(to_string(instruction), " has no micro-batch");
      if (is_message(instruction.op()) && !faces_peer(instruction))
        refuse(to_string(instruction), " is a message in the wrong direction");
    }
    if (const auto violation = broken_pair(schedule.orders[rank], rank)) refuse(violation->reason);
  }
}

void write_order(const Order& order, std::string& text) {
  bool open = false;
  for (const Instruction& instruction : order) {
    text += open ? ";" : " ";
    if (instruction.overlaps_next()) {
      text += '(';
      open = true;
    }
    text += to_string(instruction);
    if (!open || !is_compute(instruction.op()) || instruction.overlaps_next()) continue;
    text += ')';
    text += overlap;
    open = false;
  }
}

}  // namespace

std::string write_schedule(const Schedule& schedule) {
  check_writable(schedule);
  std::string text(first_line);
  text += schedule.name.empty() ? "\nname" : "\nname " + schedule.name;
  text += say("\nranks ", schedule.rank_count(), "\nstages ", schedule.stage_count(), "\nmicro_batches ",
              schedule.micro_batches, "\n");
  for (int pipeline = 0; pipeline < schedule.pipeline_count(); ++pipeline)
    text += say("rank_of_stage ", listed(schedule.placement(pipeline), " ", &Rank::value), "\n");
  if (!schedule.more_pipelines.empty())
    text += say("pipeline_of_micro_batch ", listed(schedule.pipeline_of, " "), "\n");
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank) {
    text += say("rank ", rank, ":");
    write_order(schedule.orders[rank], text);
    text += '\n';
  }
  return text;
}

Schedule read_schedule(std::string_view text) { return ScheduleReader(text).read(); }

Instruction parse_instruction(std::string_view instruction) {
  const ParsedInstruction parsed = try_parse_instruction(instruction);
  require<DataError>(parsed.instruction.has_value(), quoted(instruction), ", column ", parsed.at + 1, ": ",
                     parsed.error);
  return *parsed.instruction;
}

Schedule load_schedule(const std::string& path, std::vector<std::string>* notes) {
  const auto read = [&](const std::string& text) {
    if (std::string_view(text).substr(first_line_of(text)).starts_with("penstock")) return read_schedule(text);
    CsvSchedule csv = read_torch_csv(text);
    csv.schedule.name = std::filesystem::path(path).stem().string();
    if (notes) *notes = std::move(csv.notes);
    return std::move(csv.schedule);
  };
  // A schedule of 100 million instructions.
  constexpr std::uint64_t most_schedule_bytes = std::uint64_t{1} << 30;
  return read_file(path, read, {.most_bytes = most_schedule_bytes, .expected = "a schedule file"});
}

}  // namespace penstock
