#include "penstock/schedule/fault.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "penstock/base/error.h"

namespace penstock {
namespace {

BoardCell cell(std::size_t rank, std::size_t position) {
  return {Rank(static_cast<std::int32_t>(rank)), static_cast<int>(position)};
}

BoardCell end_of(const Schedule& schedule, StageId stage) {
  const std::size_t rank = schedule.rank_of(stage).index();
  return cell(rank, schedule.orders[rank].size());
}

/// `check(word, cell)` for every word until it returns a fault.
template <class Check>
std::optional<Fault> first_fault(const Schedule& schedule, Check&& check) {
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank)
    for (std::size_t k = 0; k < schedule.orders[rank].size(); ++k)
      if (std::optional<Fault> fault = check(schedule.orders[rank][k], cell(rank, k))) return fault;
  return std::nullopt;
}

std::optional<Fault> bad_header(const Schedule& schedule) {
  const int stages = schedule.stage_count();
  if (schedule.micro_batches < 1) return Fault{say("m = ", schedule.micro_batches, ": at least 1 is needed"), {}};
  if (stages < 1 || stages > max_stages)
    return Fault{say("there are ", stages, " stages: 1..", max_stages, " are possible"), {}};
  for (StageId s(0); s.value() < stages; s = s.next())
    if (schedule.rank_of(s).value() < 0 || schedule.rank_of(s).value() >= schedule.rank_count())
      return Fault{say("stage ", s.value(), " is given to rank ", schedule.rank_of(s).value(), ", but there are ",
                       schedule.rank_count(), " ranks"),
                   {}};
  return std::nullopt;
}

std::optional<std::string> misplaced(const Schedule& schedule, const Instruction& word, Rank rank) {
  const int stages = schedule.stage_count();
  const int m = schedule.micro_batches;
  if (word.stage().value() >= stages)
    return say(to_string(word), " names stage ", word.stage().value(), ", but the stages are 0..", stages - 1);
  if (schedule.rank_of(word.stage()) != rank)
    return say(to_string(word), " is on rank ", rank.value(), ", but stage ", word.stage().value(), " belongs to rank ",
               schedule.rank_of(word.stage()).value());
  if (word.first().value() < 0 || word.first() > word.last() || word.last().value() >= m)
    return say(to_string(word), " names a micro-batch that is not there: they are 0..", m - 1);
  if (!is_send(word.op()) && !is_receive(word.op())) return std::nullopt;
  if (word.peer().value() >= stages || !faces_peer(word))
    return say(to_string(word), " has no stage at its other end: stage ", word.stage().value(), " of ", stages);
  if (schedule.rank_of(word.peer()) == rank)
    return say(to_string(word), " is a message within rank ", rank.value(), ": stages ", word.stage().value(), " and ",
               word.peer().value(), " are both there and hand over without one");
  return std::nullopt;
}

/// An overlap pair is F, then B or I, with nothing but messages between.
std::optional<Fault> broken_pair(const Order& order, std::size_t rank) {
  const Instruction* half = nullptr;
  const auto fault = [&](const auto&... parts) {
    return Fault{say(to_string(*half), parts...), cell(rank, static_cast<std::size_t>(half - order.data()))};
  };
  for (const Instruction& word : order) {
    if (word.overlaps_next()) {
      if (half) return fault(" overlaps with ", to_string(word), ", which begins another pair");
      half = &word;
      if (word.op() != Op::forward) return fault(" is the first half of an overlap: that must be F");
    } else if (half && !is_send(word.op()) && !is_receive(word.op())) {
      if (word.op() != Op::backward && word.op() != Op::input_grad)
        return fault(" overlaps with ", to_string(word), ": the other half must be B or I");
      half = nullptr;
    }
  }
  if (half) return fault(" overlaps with nothing");
  return std::nullopt;
}

/// A schedule with fewer words than this share of its F's has no gap to name, but another header than it should.
constexpr std::int64_t few_words = 8;

std::string stands_twice(const Instruction& word) { return say(to_string(word), " stands there twice"); }

// What has been seen of one micro-batch on one stage, or on one link between ranks.
constexpr std::uint8_t seen_f = 1, seen_b = 2, seen_i = 4, seen_w = 8;

std::uint8_t bit_of(Op op) {
  switch (op) {
    case Op::forward:
    case Op::send_forward: return seen_f;
    case Op::backward:
    case Op::recv_forward: return seen_b;
    case Op::input_grad:
    case Op::send_backward: return seen_i;
    default: return seen_w;
  }
}

/// Marks a compute word; tells when it, or what it is a part of, has been marked before.
std::optional<std::string> mark(std::uint8_t& seen, const Instruction& word, MicroBatch micro_batch) {
  const std::uint8_t bit = bit_of(word.op());
  if (seen & bit)
    return word.is_fused() ? say(to_string(word), " repeats the W of micro-batch ", micro_batch.value())
                           : stands_twice(word);
  const std::uint8_t parts = seen_i | seen_w;
  const std::int32_t stage = word.stage().value();
  if (((bit & parts) && (seen & seen_b)) || (bit == seen_b && (seen & parts)))
    return say(to_string(word), ": B of stage ", stage, ", micro-batch ", micro_batch.value(),
               " stands there whole and in parts (B = I + W)");
  seen |= bit;
  return std::nullopt;
}

std::optional<Fault> missing_compute(const Schedule& schedule, const std::vector<std::uint8_t>& seen) {
  const bool forward_only = schedule.is_forward_only();
  const auto m = static_cast<std::size_t>(schedule.micro_batches);
  for (StageId s(0); s.value() < schedule.stage_count(); s = s.next())
    for (MicroBatch i(0); i.value() < schedule.micro_batches; i = i.next()) {
      const std::uint8_t bits = seen[s.index() * m + i.index()];
      const auto lacks = [&](Op op) {
        const std::string word = to_string(Instruction::compute(op, s, i));
        return Fault{say(word, " is missing on rank ", schedule.rank_of(s).value()), end_of(schedule, s)};
      };
      if (!(bits & seen_f)) return lacks(Op::forward);
      if (forward_only || (bits & seen_b)) continue;
      if (!(bits & (seen_i | seen_w))) return lacks(Op::backward);
      if (!(bits & seen_i)) return lacks(Op::input_grad);
      if (!(bits & seen_w)) return lacks(Op::weight_grad);
    }
  return std::nullopt;
}

std::optional<Fault> missing_messages(const Schedule& schedule, const Dependencies& dependencies,
                                      const std::vector<std::uint8_t>& seen) {
  const auto m = static_cast<std::size_t>(schedule.micro_batches);
  const bool forward_only = schedule.is_forward_only();
  for (std::size_t lane = 0; lane < dependencies.lane_count(); ++lane) {
    const Link& link = dependencies.link_of_lane(lane);
    for (MicroBatch i(0); i.value() < schedule.micro_batches; i = i.next()) {
      const std::uint8_t bits = seen[lane * m + i.index()];
      const auto lacks = [&](Op op, StageId at, StageId peer) {
        return Fault{say(to_string(Instruction::message(op, at, peer, i)), " is missing on rank ",
                         schedule.rank_of(at).value(), ": link ", to_string(link), " needs it"),
                     end_of(schedule, at)};
      };
      if (!(bits & seen_f)) return lacks(Op::send_forward, link.from, link.to);
      if (!(bits & seen_b)) return lacks(Op::recv_forward, link.to, link.from);
      if (forward_only || !link.gradient) continue;
      if (!(bits & seen_i)) return lacks(Op::send_backward, link.to, link.from);
      if (!(bits & seen_w)) return lacks(Op::recv_backward, link.from, link.to);
    }
  }
  return std::nullopt;
}

/// Too few messages to serve all links: told without a table of links times micro-batches, which could be huge.
std::optional<Fault> too_few_messages(const Schedule& schedule, const Dependencies& dependencies) {
  std::vector<std::int64_t> sent(dependencies.lane_count(), 0);
  const auto unserved = [&](const Instruction& word, const BoardCell&) -> std::optional<Fault> {
    if (word.op() != Op::send_forward) return std::nullopt;
    if (const auto lane = dependencies.lane(word.stage(), word.peer())) ++sent[*lane];
    return std::nullopt;
  };
  first_fault(schedule, unserved);
  for (std::size_t lane = 0; lane < sent.size(); ++lane) {
    if (sent[lane] >= schedule.micro_batches) continue;
    const Link& link = dependencies.link_of_lane(lane);
    // A link that is nearly served has its gap named below, by micro-batch.
    if (sent[lane] > 0 && schedule.micro_batches / sent[lane] < 8) continue;
    return Fault{say("link ", to_string(link), " from rank ", schedule.rank_of(link.from).value(), " to rank ",
                     schedule.rank_of(link.to).value(), " has ", sent[lane], " SEND_F for ", schedule.micro_batches,
                     " micro-batches"),
                 end_of(schedule, link.from)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Fault> find_misplaced(const Schedule& schedule) {
  if (auto fault = bad_header(schedule)) return fault;
  std::int64_t forwards = 0;
  auto fault = first_fault(schedule, [&](const Instruction& word, const BoardCell& at) -> std::optional<Fault> {
    forwards += word.op() == Op::forward;
    if (auto reason = misplaced(schedule, word, at.rank)) return Fault{*reason, at};
    return std::nullopt;
  });
  if (fault) return fault;
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank)
    if (auto pair = broken_pair(schedule.orders[rank], rank)) return pair;
  const std::int64_t needed = std::int64_t{schedule.stage_count()} * schedule.micro_batches;
  const auto words = static_cast<std::int64_t>(schedule.instruction_count());
  if (words < needed / few_words)
    return Fault{say("incomplete: ", schedule.stage_count(), " stages x ", schedule.micro_batches,
                     " micro-batches need ", needed, " F, there are ", forwards),
                 {}};
  return std::nullopt;
}

std::optional<Fault> find_incomplete(const Schedule& schedule, const Dependencies& dependencies) {
  const bool lowered = schedule.is_lowered();
  const bool forward_only = schedule.is_forward_only();
  if (lowered)
    if (auto fault = too_few_messages(schedule, dependencies)) return fault;
  const auto m = static_cast<std::size_t>(schedule.micro_batches);
  std::vector<std::uint8_t> computed(static_cast<std::size_t>(schedule.stage_count()) * m, 0);
  std::vector<std::uint8_t> carried(lowered ? dependencies.lane_count() * m : 0, 0);
  std::vector<std::uint8_t> ended(static_cast<std::size_t>(schedule.stage_count()), 0);

  const auto note = [&](const Instruction& word) -> std::optional<std::string> {
    const Op op = word.op();
    if (is_compute(op)) {
      for (MicroBatch i = word.first(); i <= word.last(); i = i.next())
        if (auto reason = mark(computed[word.stage().index() * m + i.index()], word, i)) return reason;
      return std::nullopt;
    }
    if (is_step_wide(op)) {
      const auto bit = static_cast<std::uint8_t>(1u << (static_cast<unsigned>(op) - static_cast<unsigned>(Op::reduce)));
      if (ended[word.stage().index()] & bit) return stands_twice(word);
      if (forward_only) return say(to_string(word), " has no gradients to work on: there is no B");
      ended[word.stage().index()] |= bit;
      return std::nullopt;
    }
    const bool at_producer = op == Op::send_forward || op == Op::recv_backward;
    const StageId from = at_producer ? word.stage() : word.peer();
    const StageId to = at_producer ? word.peer() : word.stage();
    const auto lane = dependencies.lane(from, to);
    if (!lane) return say(to_string(word), " goes along ", from.value(), ">", to.value(), ", which is no link");
    const bool gradient = op == Op::send_backward || op == Op::recv_backward;
    if (gradient && !dependencies.link_of_lane(*lane).gradient)
      return say(to_string(word), " carries a gradient along ", from.value(), ">", to.value(), ", which has none");
    std::uint8_t& seen = carried[*lane * m + word.micro_batch().index()];
    if (seen & bit_of(op)) return stands_twice(word);
    seen |= bit_of(op);
    return std::nullopt;
  };

  auto fault = first_fault(schedule, [&](const Instruction& word, const BoardCell& at) -> std::optional<Fault> {
    if (auto reason = note(word)) return Fault{*reason, at};
    return std::nullopt;
  });
  if (fault) return fault;
  if (auto missing = missing_compute(schedule, computed)) return missing;
  return lowered ? missing_messages(schedule, dependencies, carried) : std::nullopt;
}

bool is_replayable(const Schedule& schedule, const Dependencies& dependencies) {
  if (schedule.is_lowered() && too_few_messages(schedule, dependencies)) return false;
  std::int64_t needs = 0;
  const auto stray = first_fault(schedule, [&](const Instruction& word, const BoardCell& at) -> std::optional<Fault> {
    if (is_step_wide(word.op())) needs += schedule.micro_batches;
    if (word.op() == Op::weight_grad) needs += word.micro_batch_count();
    if (!is_send(word.op()) && !is_receive(word.op())) return std::nullopt;
    const bool at_producer = word.op() == Op::send_forward || word.op() == Op::recv_backward;
    const bool known =
        dependencies.lane(at_producer ? word.stage() : word.peer(), at_producer ? word.peer() : word.stage())
            .has_value();
    return known ? std::nullopt : std::optional(Fault{"stray", at});
  });
  return !stray && needs <= 4 * static_cast<std::int64_t>(schedule.instruction_count());
}

std::optional<Fault> find_disorder(const Schedule& schedule) {
  struct Last {
    std::int32_t forward = -1;
    std::int32_t weight = -1;
  };
  std::vector<Last> last(static_cast<std::size_t>(schedule.stage_count()));
  return first_fault(schedule, [&](const Instruction& word, const BoardCell& at) -> std::optional<Fault> {
    const bool weight = word.op() == Op::backward || word.op() == Op::weight_grad;
    if (!weight && word.op() != Op::forward) return std::nullopt;
    Last& of_stage = last[word.stage().index()];
    std::int32_t& before = weight ? of_stage.weight : of_stage.forward;
    if (word.first().value() < before)
      return Fault{
          say(to_string(word), " comes after micro-batch ", before, ": ",
              weight ? "weight gradients must accumulate" : "F must run", " in ascending order on every stage"),
          at};
    before = word.last().value();
    return std::nullopt;
  });
}

}  // namespace penstock
