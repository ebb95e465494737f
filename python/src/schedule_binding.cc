// Schedules and their costs, for Python.
#include <algorithm>
#include <fstream>
#include <map>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "module.h"
#include "penstock/base/error.h"
#include "penstock/schedule/schedule.h"
#include "penstock/trace/pictures.h"
#include "penstock/trace/schedule_table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock::python {
namespace {

using Orders = std::vector<std::vector<std::string>>;
/// One value for all stages, or one for each.
using PerStage = std::variant<double, std::vector<double>>;

std::vector<double> list_of(const PerStage& value) {
  if (const auto* one = std::get_if<double>(&value)) return {*one};
  return std::get<std::vector<double>>(value);
}

const StageCosts& or_unit(const StageCosts* costs) {
  static const StageCosts unit;
  return costs ? *costs : unit;
}

/// The placement that follows from the instructions, if every micro-batch has one: several pipelines, numbered by their
/// first micro-batches, if micro-batches take different ways. Otherwise leaves the schedule as it is.
void infer_pipelines(Schedule& schedule) {
  constexpr Rank nowhere(-1);
  const auto m = static_cast<std::size_t>(std::max(0, schedule.micro_batches));
  if (m > schedule.instruction_count() / schedule.rank_of_stage.size()) return;  // incomplete
  std::vector<std::vector<Rank>> placements(m, std::vector<Rank>(schedule.rank_of_stage.size(), nowhere));
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank)
    for (const Instruction& instruction : schedule.orders[rank]) {
      if (!is_compute(instruction.op()) || instruction.last().index() >= m) continue;
      for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next()) {
        Rank& owner = placements[i.index()][instruction.stage().index()];
        if (owner != nowhere && owner.index() != rank) return;
        owner = Rank(static_cast<std::int32_t>(rank));
      }
    }
  std::vector<std::vector<Rank>> pipelines;
  std::vector<int> pipeline_of;
  for (const std::vector<Rank>& placement : placements) {
    if (std::ranges::count(placement, nowhere) > 0) return;
    const auto known = std::ranges::find(pipelines, placement);
    pipeline_of.push_back(static_cast<int>(known - pipelines.begin()));
    if (known == pipelines.end()) pipelines.push_back(placement);
  }
  if (pipelines.size() < 2) return;
  schedule.rank_of_stage = pipelines.front();
  schedule.more_pipelines.assign(pipelines.begin() + 1, pipelines.end());
  schedule.pipeline_of = std::move(pipeline_of);
}

/// The same for `schedule`. Throws CostError if they do not fit its stages.
const StageCosts& fitting(const StageCosts* costs, const Schedule& schedule) {
  with_cost_errors([&] { require_costs_fit(or_unit(costs), schedule.stage_count()); });
  return or_unit(costs);
}

/// A simulation with its schedule, so that the critical path can be found when it is asked for.
struct Simulated : Simulation {
  Schedule schedule;
};

/// The rank of each stage follows from the instructions; a stage without any is on the first rank.
Schedule schedule_of(const Orders& orders, int micro_batches, const std::string& name) {
  Schedule schedule{.name = name, .micro_batches = micro_batches};
  std::map<int, int> rank_of;
  for (std::size_t rank = 0; rank < orders.size(); ++rank) {
    Order& order = schedule.orders.emplace_back();
    for (const std::string& text : orders[rank]) {
      order.push_back(parse_instruction(text));
      rank_of.emplace(order.back().stage().value(), static_cast<int>(rank));
    }
  }
  const int stages = rank_of.empty() ? 1 : rank_of.rbegin()->first + 1;
  for (int stage = 0; stage < stages; ++stage)
    schedule.rank_of_stage.push_back(Rank(rank_of.contains(stage) ? rank_of[stage] : 0));
  infer_pipelines(schedule);
  return schedule;
}

Orders orders_of(const Schedule& schedule) {
  Orders orders;
  for (const Order& order : schedule.orders) {
    auto& texts = orders.emplace_back();
    for (const Instruction& instruction : order) texts.push_back(to_string(instruction));
  }
  return orders;
}

/// Raises penstock.ScheduleError with the attributes rank and position.
[[noreturn]] void raise(const Validation& validation, const Schedule& schedule) {
  std::string message = validation.reason;
  try {
    validation.require_ok(schedule);
  } catch (const ScheduleError& error) {
    message = error.what();
  }
  const nb::object error = nb::module_::import_("penstock._planning").attr("ScheduleError")(message);
  error.attr("rank") = validation.cell ? nb::cast(validation.cell->rank.value()) : nb::none();
  error.attr("position") = validation.cell ? nb::cast(validation.cell->position) : nb::none();
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

const Schedule& check(const Schedule& schedule, const std::optional<std::vector<int>>& activation_bound,
                      std::optional<int> posts) {
  const auto validated = [&](const Schedule& one, std::optional<int> with_posts) {
    const Validation validation =
        validate(one, {.links = {}, .activation_bound = activation_bound, .posts = with_posts});
    if (!validation.ok) raise(validation, one);
  };
  const bool has_messages = schedule.is_lowered();
  validated(schedule, has_messages ? posts : std::nullopt);
  if (posts && !has_messages) validated(lower(schedule), posts);
  return schedule;
}

/// The text, which is also written to `path`.
std::string torch_csv(const Schedule& schedule, const std::optional<std::string>& path, bool messages) {
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order)
      require<ScheduleError>(!instruction.is_fused(), "torch has no W of several micro-batches, as ",
                             to_string(instruction), ": plan with target='torch', or weight_gradients='stream'");
  std::string text = write_torch_csv(messages ? schedule : strip(schedule), {.messages = messages});
  if (!path) return text;
  std::ofstream file(*path, std::ios::binary);
  file << text;
  require<DataError>(static_cast<bool>(file.flush()), "cannot write '", *path, "'");
  return text;
}

constexpr const char* torch_csv_help =
    "The CSV of torch.distributed.pipelining, which is also written to `path`.\n\n"
    "Raises ScheduleError for what torch cannot express.";

/// Schedule(source, ranks=..., micro_batches=...).
void construct(Schedule* self, nb::handle source, std::optional<int> ranks, int micro_batches,
               std::optional<int> chunks) {
  const nb::object made =
      nb::module_::import_("penstock.schedules")
          .attr("schedule")(source, "ranks"_a = ranks, "micro_batches"_a = micro_batches, "chunks"_a = chunks);
  new (self) Schedule(nb::cast<const Schedule&>(made));
}

Schedule lowered(const Schedule& schedule) { return schedule.is_lowered() ? schedule : lower(schedule); }

void bind_terms(nb::module_& module) {
  nb::class_<StepTerms>(module, "StepTerms", "What a whole step adds to the times of its layers.")
      .def(
          "__init__",
          [](StepTerms* self, double slowdown, double send_share, double per_step) {
            new (self) StepTerms{.slowdown = slowdown, .send_share = send_share, .per_step = per_step};
          },
          nb::kw_only(), "slowdown"_a = 0.0, "send_share"_a = 0.0, "per_step"_a = 0.0)
      .def_ro("slowdown", &StepTerms::slowdown, "F, B, I and W take 1 + slowdown times their costs.")
      .def_ro("send_share", &StepTerms::send_share, "The share of its time for which a message occupies its sender.")
      .def_ro("per_step", &StepTerms::per_step, "Added to every step once.")
      .def("asdict",
           [](const StepTerms& terms) {
             return std::map<std::string, double>{
                 {"slowdown", terms.slowdown}, {"send_share", terms.send_share}, {"per_step", terms.per_step}};
           })
      .def("__repr__", [](const StepTerms& terms) {
        return say("StepTerms(slowdown=", terms.slowdown, ", send_share=", terms.send_share,
                   ", per_step=", terms.per_step, ")");
      });
}

void bind_costs(nb::module_& module) {
  nb::class_<StageCosts> costs(module, "StageCosts",
                               "Times of the stages in any one unit: one number for all stages, or one for each.\n\n"
                               "Every argument is also an attribute, which is a list.");
  costs.def(
      "__init__",
      [](StageCosts* self, const PerStage& forward, const PerStage& input_grad, const PerStage& weight_grad,
         const std::optional<PerStage>& backward, const PerStage& update, double message, double message_gap,
         double weight_share, double overhead, const std::optional<PerStage>& activation_bytes,
         const StepTerms* terms) {
        new (self)
            StageCosts{.forward = list_of(forward),
                       .input_grad = list_of(input_grad),
                       .weight_grad = list_of(weight_grad),
                       .update = list_of(update),
                       .message = message,
                       .message_gap = message_gap,
                       .terms = terms ? *terms : StepTerms{},
                       .weight_share = weight_share,
                       .overhead = overhead,
                       .backward = backward ? list_of(*backward) : std::vector<double>{},
                       .activation_bytes = activation_bytes ? list_of(*activation_bytes) : std::vector<double>{}};
      },
      nb::kw_only(), "forward"_a = 1.0, "input_grad"_a = 1.0, "weight_grad"_a = 1.0, "backward"_a = nb::none(),
      "update"_a = 0.0, "message"_a = 0.0, "message_gap"_a = 0.0, "weight_share"_a = 0.5, "overhead"_a = 0.0,
      "activation_bytes"_a = nb::none(), "terms"_a = nb::none());
  costs.def("divided", &divided, "parts"_a, "The same for stages that are this number of equal parts of these.");
  costs.def_ro("forward", &StageCosts::forward)
      .def_ro("input_grad", &StageCosts::input_grad)
      .def_ro("weight_grad", &StageCosts::weight_grad)
      .def_ro("backward", &StageCosts::backward)
      .def_ro("update", &StageCosts::update)
      .def_ro("message", &StageCosts::message)
      .def_ro("message_gap", &StageCosts::message_gap)
      .def_ro("terms", &StageCosts::terms)
      .def_ro("weight_share", &StageCosts::weight_share)
      .def_ro("overhead", &StageCosts::overhead)
      .def_ro("activation_bytes", &StageCosts::activation_bytes);
}

void bind_simulation(nb::module_& module) {
  nb::class_<Slot>(module, "Slot", "An instruction and its times, in the unit of the costs.")
      .def_prop_ro("instruction", [](const Slot& slot) { return to_string(slot.instruction); })
      .def_ro("begin", &Slot::begin)
      .def_ro("end", &Slot::end)
      .def("__repr__", [](const Slot& slot) {
        return say("Slot('", to_string(slot.instruction), "', ", slot.begin, ", ", slot.end, ")");
      });
  nb::class_<CriticalSlot>(module, "CriticalSlot", "A slot of the chain that decides the makespan.")
      .def_prop_ro("rank", [](const CriticalSlot& one) { return one.rank.value(); })
      .def_prop_ro("instruction", [](const CriticalSlot& one) { return to_string(one.slot.instruction); })
      .def_prop_ro("begin", [](const CriticalSlot& one) { return one.slot.begin; })
      .def_prop_ro("end", [](const CriticalSlot& one) { return one.slot.end; })
      .def_ro("waits_for_message", &CriticalSlot::waits_for_message,
              "Whether it waits for a value of the slot before it, which is on another rank.")
      .def("__repr__", [](const CriticalSlot& one) {
        return say("CriticalSlot(", one.rank.value(), ", '", to_string(one.slot.instruction), "', ", one.slot.begin,
                   ", ", one.slot.end, ")");
      });
  nb::class_<Simulated>(module, "Simulation", "The times and the memory of a simulated step.")
      .def_prop_ro(
          "critical_path", [](const Simulated& self) { return critical_path(self.schedule, self); },
          "The chain of slots, first slot first, that decides the makespan.")
      .def_ro("makespan", &Simulation::makespan, "From the first start on any rank to the last end on any rank.")
      .def_ro("span", &Simulation::span, "The longest time of a rank from its own first start to its own last end.")
      .def_ro("bubble", &Simulation::bubble_makespan, "The idle share of rank time in the makespan.")
      .def_ro("bubble_span", &Simulation::bubble_span, "The idle share of rank time in the span.")
      .def_ro("busy", &Simulation::busy, "Per rank: the time in which it computes.")
      .def_ro("peak_activations", &Simulation::peak_activations,
              "Per rank: the peak of live activations, in micro-batches of a whole rank.")
      .def_ro("peak_contexts", &Simulation::peak_contexts,
              "Per rank: the peak of live micro-batches; one counts once for each chunk, until its B or W.")
      .def_ro("slots", &Simulation::slots, "Per rank: its compute and STEP instructions with their times.")
      .def("__repr__", [](const Simulated& one) {
        return say("Simulation(makespan=", one.makespan, ", bubble=", one.bubble_makespan, ")");
      });
}

void bind_schedule(nb::module_& module) {
  nb::class_<Schedule> schedule(module, "Schedule",
                                "One list of instructions per rank. A plain value: nothing changes it.");
  schedule.def_ro("name", &Schedule::name)
      .def_ro("micro_batches", &Schedule::micro_batches)
      .def_prop_ro("ranks", &Schedule::rank_count)
      .def_prop_ro("stages", &Schedule::stage_count)
      .def_prop_ro("chunks", &Schedule::chunks, "The number of stages on each rank.")
      .def_prop_ro("instructions", &Schedule::instruction_count, "The number of instructions of all ranks.")
      .def_prop_ro("is_lowered", &Schedule::is_lowered, "Whether it contains messages and the optimiser's step.")
      .def_prop_ro("orders", &orders_of, "Per rank: its instructions as texts, in the order of execution.")
      .def_prop_ro("pipelines", &Schedule::pipeline_count,
                   "The number of copies of each stage: 1, but in Chimera's schedule 2.")
      .def_ro("pipeline_of", &Schedule::pipeline_of,
              "Per micro-batch: the pipeline that computes it; empty if there is one.")
      .def_prop_ro("rank_of_stage",
                   [](const Schedule& self) {
                     std::vector<int> ranks;
                     for (const Rank rank : self.rank_of_stage) ranks.push_back(rank.value());
                     return ranks;
                   })
      .def("check", &check, nb::kw_only(), "activation_bound"_a = nb::none(), "posts"_a = nb::none(),
           nb::rv_policy::reference,
           "Proves that the schedule can run to its end, and returns it.\n\nRaises ScheduleError for the first "
           "violation, with the attributes rank and position.")
      .def("lower", &lowered, "The same with messages and the optimiser's step.")
      .def("strip", &strip, "Only the compute instructions.")
      .def(
          "fuse", [](const Schedule& self, int group) { return fuse_w(self, {.group = group}); }, "group"_a = 0,
          "W of several micro-batches as one: over the whole step (0), or over groups.")
      .def(
          "simulate",
          [](const Schedule& self, const StageCosts* costs) {
            Schedule lowered_self = lowered(self);
            Simulation made = simulate(lowered_self, fitting(costs, self), {.links = {}, .keep_slots = true});
            return Simulated{std::move(made), std::move(lowered_self)};
          },
          "costs"_a = nb::none(), nb::call_guard<nb::gil_scoped_release>(),
          "Times of a step with these costs; without: F = I = W = 1, and messages take no time.")
      .def(
          "grid", [](const Schedule& self) { return timeline_grid(self); },
          "A table for the terminal: a row per rank, a column per unit of time.")
      .def(
          "svg",
          [](const Schedule& self, const StageCosts* costs, bool critical_path) {
            return schedule_svg(lowered(self), fitting(costs, self), {.marks_critical_path = critical_path});
          },
          "costs"_a = nb::none(), nb::kw_only(), "critical_path"_a = false, "A picture; with the critical path marked.")
      .def(
          "html",
          [](const Schedule& self, const StageCosts* costs) {
            return schedule_html(lowered(self), fitting(costs, self));
          },
          "costs"_a = nb::none(), "A page with zoom, complete in itself.")
      .def("_repr_svg_", [](const Schedule& self) { return schedule_svg(lowered(self), StageCosts::unit()); })
      .def("to_text", &write_schedule, "The text of a .sched file.")
      .def("to_torch_csv", &torch_csv, "path"_a = nb::none(), nb::kw_only(), "messages"_a = false, torch_csv_help)
      .def("__init__", &construct, "source"_a, nb::kw_only(), "ranks"_a = nb::none(), "micro_batches"_a,
           "chunks"_a = nb::none(), "What penstock.schedule() takes.")
      .def(
          "__eq__", [](const Schedule& self, const Schedule& other) { return self == other; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__str__", [](const Schedule& self) { return timeline_grid(self); })
      .def("__repr__",
           [](const Schedule& self) {
             return say("Schedule('", self.name, "', ranks=", self.rank_count(), ", stages=", self.stage_count(),
                        ", micro_batches=", self.micro_batches, ")");
           })
      .def("__getstate__", &write_schedule)
      .def("__setstate__", [](Schedule& self, const std::string& text) { new (&self) Schedule(read_schedule(text)); });
}

}  // namespace

std::optional<MemoryLimit> limit_of(const GivenLimit& limit) {
  if (!limit) return std::nullopt;
  if (const auto* times = std::get_if<double>(&*limit)) return TimesOf1F1B{*times};
  return parse_memory_limit(std::get<std::string>(*limit));
}

void bind_schedules(nb::module_& module) {
  bind_terms(module);
  bind_costs(module);
  bind_simulation(module);
  bind_schedule(module);
  module.def("schedule_of", &schedule_of, "orders"_a, "micro_batches"_a, "name"_a);
  module.def(
      "generate",
      [](const std::string& name, int ranks, int micro_batches, std::optional<int> chunks, const StageCosts* costs,
         const GivenLimit& memory_limit) {
        Tuning tuning{.costs = or_unit(costs)};
        if (const auto limit = limit_of(memory_limit)) tuning.memory_limit = *limit;
        const ScheduleShape shape{ranks, micro_batches, chunks.value_or(find_generator(name).default_chunks)};
        return penstock::generate(name, shape, tuning);
      },
      "name"_a, "ranks"_a, "micro_batches"_a, "chunks"_a, "costs"_a.none(), "memory_limit"_a,
      nb::call_guard<nb::gil_scoped_release>());
  module.def("names", [] {
    std::vector<std::tuple<std::string, std::string>> names;
    for (const ScheduleGenerator& one : generators()) names.emplace_back(one.name, one.summary);
    return names;
  });
  module.def("from_text", &read_schedule, "text"_a);
  module.def(
      "from_torch_csv",
      [](std::string_view text) {
        CsvSchedule read = read_torch_csv(text);
        return std::make_tuple(std::move(read.schedule), std::move(read.notes));
      },
      "text"_a);
  module.def(
      "table",
      [](int ranks, int micro_batches, std::optional<int> chunks) {
        return to_table(schedule_table({ranks, micro_batches, chunks}));
      },
      "ranks"_a, "micro_batches"_a, "chunks"_a);
  module.def(
      "figures",
      [](const Schedule& schedule, const StageCosts* costs) {
        const StepFigures figures = simulated_figures(lowered(schedule), or_unit(costs));
        return std::make_tuple(figures.live, figures.messages);
      },
      "schedule"_a, "costs"_a.none());
}

}  // namespace penstock::python
