#include "penstock/trace/account.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/trace/complete_steps.h"

namespace penstock {
namespace {

/// A time interval, in nanoseconds.
struct Window {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t length() const { return std::max<std::int64_t>(0, end - begin); }
  Window within(const Window& other) const { return {std::max(begin, other.begin), std::min(end, other.end)}; }
};

/// From the first begin to the last end of the spans for which `counts(span)` is true; empty, at `otherwise`, if there
/// are none.
template <class Counts>
Window extent(const RankStep& step, std::int64_t otherwise, Counts&& counts) {
  std::optional<Window> found;
  for (const Span& span : step.spans) {
    if (!counts(span)) continue;
    if (!found) found = Window{span.begin_ns, span.end_ns};
    found->end = std::max(found->end, span.end_ns);
  }
  return found.value_or(Window{otherwise, otherwise});
}

/// The phases of one rank's step. Without gradients the second part of the steady phase is empty, and the drain begins
/// after the last F.
struct Phases {
  Window first;   // the first part of the steady phase
  Window second;  // the second part; empty, at the end of the first, if F's and gradients alternate

  Phases(const RankStep& step, std::int64_t end) {
    const auto is = [](const Span& span, bool forward) {
      return span.activity == Activity::compute && (span.instruction.op() == Op::forward) == forward;
    };
    const Window forwards = extent(step, end, [&](const Span& span) { return is(span, true); });
    const Window gradients = extent(step, forwards.end, [&](const Span& span) { return is(span, false); });
    const bool alternate = gradients.begin < forwards.end;
    first = alternate ? Window{gradients.begin, forwards.end} : forwards;
    second = alternate ? Window{forwards.end, forwards.end} : gradients;
  }
};

/// The sums of one rank's time by part, in nanoseconds.
class Parts {
 public:
  Parts(const Window& window, const Phases& phases) : window_(window), phases_(phases) {}

  void add(const Span& span) {
    const Window noted = Window{span.begin_ns, span.end_ns}.within(window_);
    switch (span.activity) {
      case Activity::compute: compute_ += noted.length(); return;
      case Activity::communicate: communication_ += noted.length(); return;
      case Activity::update: (span.instruction.op() == Op::step ? update_ : synchronisation_) += noted.length(); return;
      case Activity::wait: add_wait(span, noted); return;
    }
  }

  void add_idle(Window idle) {
    idle = idle.within(window_);
    const std::int64_t steady = idle.within(phases_.first).length() + idle.within(phases_.second).length();
    const std::int64_t drain = idle.within({phases_.second.end, window_.end}).length();
    imbalance_ += steady;
    drain_ += drain;
    warmup_ += idle.length() - steady - drain;
  }

  void add_other(const Window& gap) { other_ += gap.within(window_).length(); }

  RankAccount account() const {
    RankAccount result;
    result.total = to_ms(window_.length());
    result.compute = to_ms(compute_);
    result.update = to_ms(update_);
    result.synchronisation = to_ms(synchronisation_);
    result.communication = to_ms(communication_);
    result.wait_message = to_ms(message_);
    result.wait_late = to_ms(late_);
    result.wait_warmup = to_ms(warmup_);
    result.wait_imbalance = to_ms(imbalance_);
    result.wait_drain = to_ms(drain_);
    result.other = to_ms(other_);
    return result;
  }

 private:
  void add_wait(const Span& span, const Window& noted) {
    if (is_step_wide(span.instruction.op())) {
      synchronisation_ += noted.length();
      return;
    }
    // A wait has three parts: until the message is sent, until it arrives, and until this rank runs again.
    const auto back_from = [&](std::int64_t end, std::int64_t length) {
      return std::max(span.begin_ns, end - std::max<std::int64_t>(0, length));
    };
    const std::int64_t arrived = back_from(span.end_ns, span.late_ns);
    const std::int64_t left = back_from(arrived, span.transit_ns);
    late_ += Window{arrived, span.end_ns}.within(window_).length();
    message_ += Window{left, arrived}.within(window_).length();
    add_idle({span.begin_ns, left});
  }

  Window window_;
  Phases phases_;
  std::int64_t compute_ = 0, update_ = 0, synchronisation_ = 0, communication_ = 0, message_ = 0, late_ = 0;
  std::int64_t warmup_ = 0, imbalance_ = 0, drain_ = 0, other_ = 0;
};

/// Splits one rank's time in `window` into its parts: the spans, the idle time before the first and after the last
/// span, and the gaps between spans.
RankAccount account_of(const RankStep& step, const Window& window) {
  Parts parts(window, Phases(step, window.end));
  std::int64_t cursor = window.begin;
  bool is_first = true;
  for (const Span& span : step.spans) {
    const Window gap{cursor, span.begin_ns};
    if (is_first)
      parts.add_idle(gap);
    else
      parts.add_other(gap);
    parts.add(span);
    cursor = std::max(cursor, span.end_ns);
    is_first = false;
  }
  parts.add_idle({cursor, window.end});
  return parts.account();
}

double busy_ms(const RankStep& step, const Window& window) {
  std::int64_t busy = 0;
  for (const Span& span : step.spans)
    if (is_busy(span)) busy += Window{span.begin_ns, span.end_ns}.within(window).length();
  return to_ms(busy);
}

/// The value of Account::between_steps_ms.
std::optional<double> between_steps(const std::vector<WorldStep>& steps) {
  std::vector<double> gaps;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].step != steps[i - 1].step + 1) continue;
    std::int64_t end = std::numeric_limits<std::int64_t>::min();
    std::int64_t begin = std::numeric_limits<std::int64_t>::max();
    for (const RankStep* rank : steps[i - 1].ranks) end = std::max(end, rank->end_ns);
    for (const RankStep* rank : steps[i].ranks) begin = std::min(begin, rank->begin_ns);
    gaps.push_back(to_ms(Window{end, begin}.length()));
  }
  if (gaps.empty()) return std::nullopt;
  return median(std::move(gaps));
}

/// The value of Account::planned_ms. Users can define settings, so text that is no number is ignored.
std::optional<double> planned_ms(const Trace& trace) {
  const auto found = trace.settings.find(planned_ms_setting);
  if (found == trace.settings.end()) return std::nullopt;
  const auto value = number_of<double>(found->second);
  return value && *value >= 0 && std::isfinite(*value) ? value : std::nullopt;
}

/// The idle share of `ranks` ranks with a total busy time of `busy` in a step of length `cost`.
double idle_share(double busy, std::size_t ranks, double cost) {
  return cost > 0 ? 1 - busy / (static_cast<double>(ranks) * cost) : 0;
}

/// The measured times of one stage's instructions in all steps, in milliseconds. median_of_steps() of them is a cost.
struct StageSamples {
  std::vector<double> forward, backward, input_grad, weight_grad, update;

  void add_compute(const Instruction& instruction, double ms) {
    switch (instruction.op()) {
      case Op::forward: return forward.push_back(ms);
      case Op::backward: return backward.push_back(ms);
      case Op::input_grad: return input_grad.push_back(ms);
      case Op::weight_grad: return weight_grad.push_back(ms / instruction.micro_batch_count());
      default: return;
    }
  }
};

std::string ms(double value) { return fixed(value, 2); }

/// A column of the table and the member of RankAccount that it shows.
struct Column {
  const char* name;
  double RankAccount::*part;
};

constexpr Column columns[] = {{"compute", &RankAccount::compute},      {"update", &RankAccount::update},
                              {"sync", &RankAccount::synchronisation}, {"sending", &RankAccount::communication},
                              {"warm-up", &RankAccount::wait_warmup},  {"imbalance", &RankAccount::wait_imbalance},
                              {"message", &RankAccount::wait_message}, {"woken-late", &RankAccount::wait_late},
                              {"drain", &RankAccount::wait_drain},     {"other", &RankAccount::other},
                              {"total", &RankAccount::total}};

/// The last row: the share of each part in the time of all ranks.
std::vector<std::string> shares(const std::vector<RankAccount>& ranks) {
  const auto sum_of = [&](double RankAccount::*part) {
    double sum = 0;
    for (const RankAccount& rank : ranks) sum += rank.*part;
    return sum;
  };
  const double all = sum_of(&RankAccount::total);
  std::vector<std::string> row{"all", ""};
  for (const Column& column : columns) row.push_back(percent(all > 0 ? sum_of(column.part) / all : 0));
  return row;
}

}  // namespace

StageCosts measured_costs(const Trace& trace) {
  const std::size_t stage_count = trace.schedule.rank_of_stage.size();
  std::vector<StageSamples> stages(stage_count);
  std::vector<double> transits;
  const std::vector<WorldStep> steps = complete_steps(trace);
  for (const WorldStep& step : steps)
    for (const RankStep* rank : step.ranks) {
      std::vector<double> update(stage_count, 0);
      std::vector<bool> is_updated(stage_count, false);
      for (const Span& span : rank->spans) {
        const std::size_t stage = span.instruction.stage().index();
        const double ms = to_ms(span.end_ns - span.begin_ns);
        if (span.activity == Activity::wait && span.transit_ns > 0) transits.push_back(to_ms(span.transit_ns));
        if (span.activity == Activity::compute) stages[stage].add_compute(span.instruction, ms);
        if (span.activity != Activity::update || stage >= stage_count) continue;
        update[stage] += ms;
        is_updated[stage] = true;
      }
      for (std::size_t stage = 0; stage < stage_count; ++stage)
        if (is_updated[stage]) stages[stage].update.push_back(update[stage]);
    }

  StageCosts costs{{}, {}, {}, {}, median(std::move(transits))};
  for (const StageSamples& stage : stages) {
    const bool is_split = !stage.input_grad.empty();
    costs.forward.push_back(median_of_steps(stage.forward, steps.size()));
    costs.input_grad.push_back(median_of_steps(is_split ? stage.input_grad : stage.backward, steps.size()));
    costs.weight_grad.push_back(is_split ? median_of_steps(stage.weight_grad, steps.size()) : 0);
    costs.update.push_back(median(stage.update));
  }
  return costs;
}

Account account(const Trace& trace) {
  const WorldStep step = median_step(trace);
  const Window window{step.begin_ns, step.end_ns};
  Account result;
  result.step = step.step;
  result.measured_ms = to_ms(window.length());
  const std::vector<WorldStep> steps = complete_steps(trace);
  const auto [shortest, longest] =
      std::minmax_element(steps.begin(), steps.end(),
                          [](const WorldStep& a, const WorldStep& b) { return a.makespan_ns() < b.makespan_ns(); });
  result.steps = steps.size();
  result.shortest_ms = to_ms(shortest->makespan_ns());
  result.longest_ms = to_ms(longest->makespan_ns());
  result.between_steps_ms = between_steps(steps);

  double busy = 0;
  double span = 0;
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    RankAccount part = account_of(*step.ranks[rank], window);
    part.stages = stages_of(trace.schedule, pipeline_rank(trace, rank));
    busy += busy_ms(*step.ranks[rank], window);
    span = std::max(span, to_ms(extent(*step.ranks[rank], window.end, is_busy).length()));
    result.ranks.push_back(std::move(part));
  }
  result.bubble_measured = idle_share(busy, step.ranks.size(), result.measured_ms);
  result.bubble_span_measured = idle_share(busy, step.ranks.size(), span);

  const Simulation predicted =
      simulate(trace.schedule, measured_costs(trace), {.links = executed_links(trace.schedule)});
  result.predicted_ms = predicted.makespan;
  result.planned_ms = planned_ms(trace);
  result.bubble_predicted = predicted.bubble_makespan;
  result.bubble_span_predicted = predicted.bubble_span;
  return result;
}

std::string to_table(const Account& account) {
  std::vector<std::vector<std::string>> rows{{"rank", "stages"}};
  for (const Column& column : columns) rows.front().push_back(column.name);
  for (std::size_t rank = 0; rank < account.ranks.size(); ++rank) {
    rows.push_back({std::to_string(rank), listed(account.ranks[rank].stages, ",", &StageId::value)});
    for (const Column& column : columns) rows.back().push_back(ms(account.ranks[rank].*column.part));
  }
  rows.push_back(shares(account.ranks));
  return say(aligned(rows), "times in ms; warm-up, imbalance, message, woken-late and drain are waits\n",
             account.between_steps_ms
                 ? say("between steps: ", ms(*account.between_steps_ms), " ms in which no rank had anything to do\n")
                 : "",
             "step ", account.step, ", the median of ", account.steps, " (", ms(account.shortest_ms), " to ",
             ms(account.longest_ms), " ms): measured ", ms(account.measured_ms), " ms, predicted ",
             ms(account.predicted_ms), " ms from the times of this run's own instructions\n",
             account.planned_ms ? say("the plan predicted ", ms(*account.planned_ms), " ms before the run\n") : "",
             "bubble: measured ", percent(account.bubble_measured), ", predicted ", percent(account.bubble_predicted),
             " (makespan); measured ", percent(account.bubble_span_measured), ", predicted ",
             percent(account.bubble_span_predicted), " (span)\n");
}

}  // namespace penstock
