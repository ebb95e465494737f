// A second implementation of schedule validation, as simple as possible, for tests of validate(). It shares no code
// with the library's dependencies. It counts instructions in a map, and executes them by trying every rank repeatedly;
// the state is a set of facts, which are strings.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/schedule/validate.h"

namespace penstock {

class Interpreter {
 public:
  Interpreter(const Schedule& schedule, const Links& links)
      : schedule_(schedule), links_(links), lowered_(schedule.is_lowered()), reached_(schedule.orders.size(), 0) {
    for (const Order& order : schedule.orders)
      for (const Instruction& instruction : order) {
        trains_ = trains_ || instruction.op() == Op::backward || instruction.op() == Op::input_grad ||
                  instruction.op() == Op::weight_grad;
        for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next()) ++count_[name(instruction, i)];
      }
  }

  bool works() { return placed() && paired() && counted() && !first_disorder() && runs(); }

  /// The first instruction that follows a later micro-batch of the same stage and kind.
  std::optional<GridCell> first_disorder() const {
    const auto kind = [](Op op) { return op == Op::forward ? 1 : op == Op::backward || op == Op::weight_grad ? 2 : 0; };
    for (std::size_t rank = 0; rank < schedule_.orders.size(); ++rank) {
      const Order& order = schedule_.orders[rank];
      for (std::size_t b = 0; b < order.size(); ++b)
        for (std::size_t a = 0; a < b; ++a)
          if (order[a].stage() == order[b].stage() && pipeline_of(order[a]) == pipeline_of(order[b]) &&
              kind(order[a].op()) == kind(order[b].op()) && kind(order[a].op()) > 0 &&
              order[a].last() > order[b].first())
            return GridCell{Rank(static_cast<std::int32_t>(rank)), static_cast<int>(b)};
    }
    return std::nullopt;
  }

  /// Call it after works() has returned false because of a deadlock. True if `cell` is the next instruction of its
  /// rank, and that rank waits for itself, directly or through other ranks.
  bool waits_for_itself(const GridCell& cell) const {
    if (cell.position != reached_[cell.rank.index()]) return false;
    std::set<std::size_t> waits_for = needed_ranks(cell.rank.index());
    for (bool grows = true; grows;) {
      const std::size_t before = waits_for.size();
      for (const std::size_t rank : std::set(waits_for)) waits_for.merge(needed_ranks(rank));
      grows = waits_for.size() > before;
    }
    return waits_for.contains(cell.rank.index());
  }

 private:
  static std::string name(const Instruction& instruction, MicroBatch i) {
    return say(to_string(instruction.op()), " ", instruction.stage().value(), " ", instruction.peer().value(), " ",
               i.value());
  }
  static std::string fact(const char* what, int a, int b, int i) { return say(what, " ", a, " ", b, " ", i); }
  static std::string fact(const char* what, int stage, int i = 0) { return say(what, " ", stage, " ", i); }
  int pipeline_of(const Instruction& instruction) const {
    return schedule_.pipeline_of.empty() ? 0 : schedule_.pipeline_of[instruction.micro_batch().index()];
  }
  bool by_message(const Link& link, int i) const {
    return lowered_ && schedule_.rank_of(link.from, MicroBatch(i)) != schedule_.rank_of(link.to, MicroBatch(i));
  }

  bool placed() const {
    for (int r = 0; r < schedule_.rank_count(); ++r) {
      const Rank rank(r);
      std::set<std::string> step_wide;
      for (const Instruction& instruction : schedule_.orders[rank.index()])
        if (is_step_wide(instruction.op())) {
          bool here = schedule_.rank_of(instruction.stage()) == rank;
          for (const std::vector<Rank>& ranks : schedule_.more_pipelines)
            here = here || ranks[instruction.stage().index()] == rank;
          if (!here || !trains_ || !step_wide.insert(to_string(instruction)).second) return false;
        } else {
          for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next())
            if (schedule_.rank_of(instruction.stage(), i) != rank) return false;
        }
    }
    return true;
  }

  /// True if every F with an overlap mark is followed by B or I, with only messages between them.
  bool paired() const {
    for (const Order& order : schedule_.orders)
      for (std::size_t k = 0; k < order.size(); ++k) {
        if (!order[k].overlaps_next()) continue;
        std::size_t next = k + 1;
        while (next < order.size() && (is_send(order[next].op()) || is_receive(order[next].op()))) ++next;
        if (order[k].op() != Op::forward || next == order.size()) return false;
        if (order[next].op() != Op::backward && order[next].op() != Op::input_grad) return false;
      }
    return true;
  }

  /// Removes the expected instructions from the counts. None may be missing, and none may remain.
  bool counted() const {
    std::map<std::string, int> left = count_;
    const auto take = [&](const std::string& expected) { return left[expected]-- == 1; };
    for (int i = 0; i < schedule_.micro_batches; ++i) {
      for (int s = 0; s < schedule_.stage_count(); ++s) {
        if (!take(fact("F", s, s, i))) return false;
        if (!trains_) continue;
        const bool split = count_.contains(fact("I", s, s, i));
        if (split ? !take(fact("I", s, s, i)) || !take(fact("W", s, s, i)) : !take(fact("B", s, s, i))) return false;
      }
      for (const Link& link : links_) {
        if (!by_message(link, i)) continue;
        const int a = link.from.value(), b = link.to.value();
        if (!take(fact("SEND_F", a, b, i)) || !take(fact("RECV_F", b, a, i))) return false;
        if (!trains_ || !link.gradient) continue;
        if (!take(fact("SEND_B", b, a, i)) || !take(fact("RECV_B", a, b, i))) return false;
      }
    }
    for (const auto& [what, number] : left) {
      const bool step = what.starts_with("REDUCE") || what.starts_with("NORM") || what.starts_with("STEP");
      if (number > (step ? schedule_.pipeline_count() : 0)) return false;
    }
    return true;
  }

  std::vector<std::string> needs(const Instruction& instruction) const {
    const int s = instruction.stage().value();
    const int i = instruction.micro_batch().value();
    std::vector<std::string> facts;
    const auto all_weights = [&] {
      for (int k = 0; k < schedule_.micro_batches; ++k) facts.push_back(fact("weight", s, k));
    };
    switch (instruction.op()) {
      case Op::forward:
        for (const Link& link : links_) {
          const int a = link.from.value();
          if (link.to.value() != s) continue;
          facts.push_back(fact("output", a, i));
          if (!by_message(link, i)) continue;
          facts.push_back(fact("sent F", a, s, i));
          facts.push_back(fact("asked F", a, s, i));
        }
        break;
      case Op::backward:
      case Op::input_grad:
        facts.push_back(fact("output", s, i));
        for (const Link& link : links_) {
          const int b = link.to.value();
          if (link.from.value() != s || !link.gradient) continue;
          facts.push_back(fact("gradient", b, i));
          if (!by_message(link, i)) continue;
          facts.push_back(fact("sent B", b, s, i));
          facts.push_back(fact("asked B", b, s, i));
        }
        break;
      case Op::weight_grad:
        for (int k = instruction.first().value(); k <= instruction.last().value(); ++k)
          facts.push_back(fact("gradient", s, k));
        break;
      case Op::send_forward: facts.push_back(fact("output", s, i)); break;
      case Op::send_backward: facts.push_back(fact("gradient", s, i)); break;
      case Op::recv_forward:
      case Op::recv_backward: break;
      case Op::step:
        if (count_.contains(fact("NORM", s, s, 0))) facts.push_back(fact("normed", s));
        [[fallthrough]];
      case Op::norm:
        if (count_.contains(fact("REDUCE", s, s, 0))) facts.push_back(fact("reduced", s));
        all_weights();
        break;
      case Op::reduce: all_weights(); break;
    }
    return facts;
  }

  static std::vector<std::string> gives(const Instruction& instruction) {
    const int s = instruction.stage().value();
    const int peer = instruction.peer().value();
    const int i = instruction.micro_batch().value();
    std::vector<std::string> facts;
    switch (instruction.op()) {
      case Op::forward: return {fact("output", s, i)};
      case Op::backward: return {fact("gradient", s, i), fact("weight", s, i)};
      case Op::input_grad: return {fact("gradient", s, i)};
      case Op::weight_grad:
        for (int k = i; k <= instruction.last().value(); ++k) facts.push_back(fact("weight", s, k));
        return facts;
      case Op::send_forward: return {fact("sent F", s, peer, i)};
      case Op::recv_forward: return {fact("asked F", peer, s, i)};
      case Op::send_backward: return {fact("sent B", s, peer, i)};
      case Op::recv_backward: return {fact("asked B", peer, s, i)};
      case Op::reduce: return {fact("reduced", s)};
      case Op::norm: return {fact("normed", s)};
      case Op::step: return {};
    }
    return {};
  }

  bool may_run(const Instruction& instruction) const {
    for (const std::string& need : needs(instruction))
      if (!facts_.contains(need)) return false;
    return true;
  }

  bool runs() {
    bool all = false;
    for (bool progress = true; progress && !all;) {
      progress = false;
      all = true;
      for (std::size_t rank = 0; rank < reached_.size(); ++rank) {
        const Order& order = schedule_.orders[rank];
        const auto at = static_cast<std::size_t>(reached_[rank]);
        if (at < order.size() && may_run(order[at])) {
          for (const std::string& given : gives(order[at])) facts_.insert(given);
          ++reached_[rank];
          progress = true;
        }
        all = all && static_cast<std::size_t>(reached_[rank]) == order.size();
      }
    }
    return all;
  }

  /// The ranks whose remaining instructions produce the facts for which `rank` waits.
  std::set<std::size_t> needed_ranks(std::size_t rank) const {
    std::set<std::size_t> ranks;
    const auto at = static_cast<std::size_t>(reached_[rank]);
    if (at == schedule_.orders[rank].size()) return ranks;
    for (const std::string& need : needs(schedule_.orders[rank][at]))
      for (std::size_t producer = 0; producer < reached_.size() && !facts_.contains(need); ++producer)
        for (auto k = static_cast<std::size_t>(reached_[producer]); k < schedule_.orders[producer].size(); ++k)
          for (const std::string& given : gives(schedule_.orders[producer][k]))
            if (given == need) ranks.insert(producer);
    return ranks;
  }

  const Schedule& schedule_;
  const Links& links_;
  bool lowered_;
  bool trains_ = false;
  std::map<std::string, int> count_;
  std::set<std::string> facts_;
  std::vector<int> reached_;
};

}  // namespace penstock
