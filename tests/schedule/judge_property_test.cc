// The judge against a plain interpreter that shares no code with it: it counts words in a multiset, and runs them by
// trying every rank again and again. Schedules that work are damaged at random and must be judged alike.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "penstock/base/error.h"
#include "penstock/schedule/judge.h"
#include "penstock/schedule/text.h"
#include "tests/schedule/random_schedule.h"

namespace penstock {
namespace {

class Interpreter {
 public:
  Interpreter(const Schedule& schedule, const Links& links)
      : schedule_(schedule), links_(links), lowered_(schedule.is_lowered()) {
    for (const Order& order : schedule.orders)
      for (const Instruction& word : order) {
        trains_ = trains_ || word.op() == Op::backward || word.op() == Op::input_grad || word.op() == Op::weight_grad;
        for (MicroBatch i = word.first(); i <= word.last(); i = i.next()) ++count_[fact(word, i)];
      }
  }

  bool works() { return placed() && counted() && ascending() && runs(); }

 private:
  static std::string fact(const Instruction& word, MicroBatch i) {
    return say(to_string(word.op()), " ", word.stage().value(), " ", word.peer().value(), " ", i.value());
  }
  static std::string fact(const char* op, int stage, int peer, int i) {
    return say(op, " ", stage, " ", peer, " ", i);
  }
  int rank_of(int stage) const { return schedule_.rank_of_stage[static_cast<std::size_t>(stage)].value(); }
  bool between_ranks(const Link& link) const { return rank_of(link.from.value()) != rank_of(link.to.value()); }

  bool placed() const {
    for (int rank = 0; rank < schedule_.rank_count(); ++rank)
      for (const Instruction& word : schedule_.orders[static_cast<std::size_t>(rank)]) {
        if (rank_of(word.stage().value()) != rank) return false;
        if (is_step_wide(word.op()) && !trains_) return false;
      }
    return true;
  }

  /// Takes the expected facts away; nothing may be lacking and nothing may be left.
  bool counted() {
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
        if (!lowered_ || !between_ranks(link)) continue;
        const int a = link.from.value(), b = link.to.value();
        if (!take(fact("SEND_F", a, b, i)) || !take(fact("RECV_F", b, a, i))) return false;
        if (!trains_ || !link.gradient) continue;
        if (!take(fact("SEND_B", b, a, i)) || !take(fact("RECV_B", a, b, i))) return false;
      }
    }
    for (const auto& [what, number] : left) {
      const bool step = what.starts_with("REDUCE") || what.starts_with("NORM") || what.starts_with("STEP");
      if (number > (step ? 1 : 0)) return false;
    }
    return true;
  }

  bool ascending() const {
    for (const Order& order : schedule_.orders)
      for (std::size_t a = 0; a < order.size(); ++a)
        for (std::size_t b = a + 1; b < order.size(); ++b) {
          const auto kind = [](Op op) {
            return op == Op::forward ? 1 : op == Op::backward || op == Op::weight_grad ? 2 : 0;
          };
          if (order[a].stage() == order[b].stage() && kind(order[a].op()) == kind(order[b].op()) &&
              kind(order[a].op()) > 0 && order[a].last() > order[b].first())
            return false;
        }
    return true;
  }

  bool has(const std::string& what) const { return done_.contains(what); }
  bool gradient_done(int stage, int i) const {
    return has(fact("B", stage, stage, i)) || has(fact("I", stage, stage, i));
  }
  bool weight_done(int stage, int i) const {
    return has(fact("B", stage, stage, i)) || has(fact("W", stage, stage, i));
  }
  bool all_weights(int stage) const {
    for (int i = 0; i < schedule_.micro_batches; ++i)
      if (!weight_done(stage, i)) return false;
    return true;
  }

  bool may_run(const Instruction& word) const {
    const int s = word.stage().value();
    const int i = word.micro_batch().value();
    switch (word.op()) {
      case Op::forward:
        for (const Link& link : links_) {
          const int a = link.from.value();
          if (link.to.value() != s) continue;
          if (!has(fact("F", a, a, i))) return false;
          if (lowered_ && between_ranks(link) && !(has(fact("SEND_F", a, s, i)) && has(fact("RECV_F", s, a, i))))
            return false;
        }
        return true;
      case Op::backward:
      case Op::input_grad:
        for (const Link& link : links_) {
          const int b = link.to.value();
          if (link.from.value() != s || !link.gradient) continue;
          if (!gradient_done(b, i)) return false;
          if (lowered_ && between_ranks(link) && !(has(fact("SEND_B", b, s, i)) && has(fact("RECV_B", s, b, i))))
            return false;
        }
        return has(fact("F", s, s, i));
      case Op::weight_grad:
        for (int k = word.first().value(); k <= word.last().value(); ++k)
          if (!gradient_done(s, k)) return false;
        return true;
      case Op::send_forward: return has(fact("F", s, s, i));
      case Op::send_backward: return gradient_done(s, i);
      case Op::recv_forward:
      case Op::recv_backward: return true;
      case Op::reduce: return all_weights(s);
      case Op::norm:
        return all_weights(s) && (!count_.contains(fact("REDUCE", s, s, 0)) || has(fact("REDUCE", s, s, 0)));
      case Op::step:
        for (const char* before : {"REDUCE", "NORM"})
          if (count_.contains(fact(before, s, s, 0)) && !has(fact(before, s, s, 0))) return false;
        return all_weights(s);
    }
    return false;
  }

  bool runs() {
    std::vector<std::size_t> at(schedule_.orders.size(), 0);
    bool all = false;
    for (bool progress = true; progress && !all;) {
      progress = false;
      all = true;
      for (std::size_t rank = 0; rank < at.size(); ++rank) {
        const Order& order = schedule_.orders[rank];
        if (at[rank] < order.size() && may_run(order[at[rank]])) {
          const Instruction& word = order[at[rank]++];
          for (MicroBatch i = word.first(); i <= word.last(); i = i.next()) done_.insert(fact(word, i));
          progress = true;
        }
        all = all && at[rank] == order.size();
      }
    }
    return all;
  }

  const Schedule& schedule_;
  const Links& links_;
  bool lowered_;
  bool trains_ = false;
  std::map<std::string, int> count_;
  std::set<std::string> done_;
};

std::size_t any_index(const Order& order) { return *rc::gen::inRange<std::size_t>(0, order.size()); }

/// Swaps, drops, doubles or moves one word.
void damage(Schedule& schedule) {
  Order& order = schedule.orders[*rc::gen::inRange<std::size_t>(0, schedule.orders.size())];
  if (order.empty()) return;
  const auto at = [&](std::size_t k) { return order.begin() + static_cast<std::ptrdiff_t>(k); };
  const std::size_t k = any_index(order);
  switch (*rc::gen::inRange(0, 7)) {
    case 0: order.erase(at(k)); break;
    case 1: order.insert(at(any_index(order)), Instruction(order[k])); break;
    case 2: {
      const Instruction word = order[k];
      order.erase(at(k));
      schedule.orders[*rc::gen::inRange<std::size_t>(0, schedule.orders.size())].push_back(word);
      break;
    }
    case 3: order[k] = any_word(schedule.stage_count(), schedule.micro_batches); break;
    default: std::swap(order[k], order[any_index(order)]);  // the damage that most often leaves it working
  }
}

TEST(Judge, agrees_with_a_plain_interpreter_on_damaged_schedules) {
  EXPECT_TRUE(rc::check("judge(x) == interpret(x)", [] {
    const int stages = *rc::gen::inRange(1, 6);
    const Links links = any_links(stages);
    Schedule schedule = working_schedule(stages, links);
    if (*rc::gen::inRange(0, 2) == 0)
      schedule = lower(schedule, links, {.reduce = *rc::gen::arbitrary<bool>(), .norm = *rc::gen::arbitrary<bool>()});
    RC_ASSERT(Interpreter(schedule, links).works());
    for (int n = *rc::gen::inRange(0, 4); n > 0; --n) damage(schedule);

    const Verdict verdict = judge(schedule, {.links = links, .activation_bound = {}});
    const bool works = Interpreter(schedule, links).works();
    RC_CLASSIFY(works, "works");
    RC_LOG() << write_schedule(schedule) << verdict.reason;
    RC_ASSERT(verdict.ok == works);
    RC_ASSERT(verdict.ok == verdict.reason.empty());
    if (!verdict.ok) RC_ASSERT_THROWS_AS(verdict.require_ok(schedule), PlanError);
  }));
}

TEST(Judge, words_in_any_order_are_judged_without_harm) {
  EXPECT_TRUE(rc::check("judge(any words) ends", [] {
    const Schedule schedule = any_words();
    const Verdict verdict = judge(schedule);
    RC_ASSERT(verdict.ok == verdict.reason.empty());
    board(schedule, {.marked = verdict.cell, .max_columns = *rc::gen::inRange(0, 9)});
  }));
}

}  // namespace
}  // namespace penstock
