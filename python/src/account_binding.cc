// The account of a step that another program has recorded, for Python.
#include <array>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "module.h"
#include "penstock/base/error.h"
#include "penstock/plan/advice.h"
#include "penstock/schedule/schedule.h"
#include "penstock/trace/trace.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock::python {
namespace {

/// Instruction, activity ("compute", "wait", "communicate" or "update"), begin, end and transit in nanoseconds.
using SpanRow = std::tuple<std::string, std::string, std::int64_t, std::int64_t, std::int64_t>;
using StepRows = std::vector<SpanRow>;

/// A trace with its account.
struct AccountedTrace {
  Trace trace;
  Account account;
  Advice advice;
};

Activity activity_named(const std::string& name) {
  constexpr std::array names = {"compute", "wait", "communicate", "update"};
  for (std::size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<Activity>(i);
  throw ConfigError(say("activity '", name, "': pass compute, wait, communicate or update"));
}

RankStep step_of(const StepRows& rows, std::uint64_t number) {
  RankStep step{.step = number, .spans = {}};
  for (const auto& [instruction, activity, begin, end, transit] : rows)
    step.spans.push_back({.instruction = parse_instruction(instruction),
                          .activity = activity_named(activity),
                          .begin_ns = begin,
                          .end_ns = end,
                          .transit_ns = transit});
  if (!step.spans.empty()) {
    step.begin_ns = step.spans.front().begin_ns;
    step.end_ns = step.spans.back().end_ns;
  }
  return step;
}

AccountedTrace accounted(const Schedule& schedule, const std::vector<std::vector<StepRows>>& ranks,
                         const std::map<std::string, std::string>& settings) {
  AccountedTrace made{.trace = {.schedule = schedule.is_lowered() ? schedule : lower(schedule), .settings = settings}};
  for (const std::vector<StepRows>& steps : ranks) {
    auto& recorded = made.trace.ranks.emplace_back();
    for (const StepRows& rows : steps) recorded.push_back(step_of(rows, recorded.size()));
  }
  made.account = account(made.trace);
  made.advice = advise(made.trace);
  return made;
}

nb::dict parts_of(const RankAccount& rank) {
  nb::dict parts;
  parts["compute"] = rank.compute;
  parts["update"] = rank.update;
  parts["synchronisation"] = rank.synchronisation;
  parts["sending"] = rank.communication;
  parts["warm_up"] = rank.wait_warmup;
  parts["imbalance"] = rank.wait_imbalance;
  parts["message"] = rank.wait_message;
  parts["woken_late"] = rank.wait_late;
  parts["drain"] = rank.wait_drain;
  parts["other"] = rank.other;
  parts["total"] = rank.total;
  return parts;
}

nb::list rank_rows(const AccountedTrace& self) {
  nb::list rows;
  for (const RankAccount& rank : self.account.ranks) rows.append(parts_of(rank));
  return rows;
}

}  // namespace

void bind_accounts(nb::module_& module) {
  nb::class_<AccountedTrace>(module, "Account", "Where the time of the step of median length went, in milliseconds.")
      .def_prop_ro("measured", [](const AccountedTrace& self) { return self.account.measured_ms; })
      .def_prop_ro(
          "predicted", [](const AccountedTrace& self) { return self.account.predicted_ms; },
          "The simulated step with the median times of the run's own instructions.")
      .def_prop_ro("bubble", [](const AccountedTrace& self) { return self.account.bubble_measured; })
      .def_prop_ro("steps", [](const AccountedTrace& self) { return self.account.steps; })
      .def_prop_ro("ranks", &rank_rows, nb::sig("def ranks(self) -> list[dict[str, float]]"),
                   "Per rank: the parts of its time, whose sum is `total`.")
      .def_prop_ro(
          "costs", [](const AccountedTrace& self) { return measured_costs(self.trace); },
          "The measured times of the stages, for `Schedule.simulate`.")
      .def_prop_ro(
          "sentence", [](const AccountedTrace& self) { return self.advice.sentence; }, "What would help most.")
      .def(
          "to_trace", [](const AccountedTrace& self) { return write_trace(self.trace); },
          "The text of a trace file, for `penstock trace` and for Perfetto.")
      .def("_repr_svg_", [](const AccountedTrace& self) { return step_svg(self.trace); })
      .def("__str__",
           [](const AccountedTrace& self) { return say(to_table(self.account), self.advice.sentence, "\n"); });
  module.def("account_of", &accounted, "schedule"_a, "ranks"_a, "settings"_a);
}

}  // namespace penstock::python
