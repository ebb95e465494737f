// Plans, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "module.h"
#include "penstock/base/error.h"
#include "penstock/plan/plan.h"
#include "penstock/plan/plan_report.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock::python {
namespace {

std::optional<std::string> text_of(const std::optional<MemoryLimit>& limit) {
  return limit ? std::optional(to_string(*limit)) : std::nullopt;
}

Cluster cluster_of(std::string_view text) {
  return with_cost_errors([&] { return read_cluster(text); });
}

/// Ends a long call if Python has received a signal, such as Ctrl-C.
void stop_on_signal(const PlanProgress&) {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) nb::raise_python_error();
}

void bind_candidate(nb::module_& module) {
  nb::class_<Candidate>(module, "Candidate", "A schedule with the best partition for it, and its predicted step.")
      .def_ro("schedule", &Candidate::schedule)
      .def_ro("chunks", &Candidate::chunks)
      .def_ro("micro_batches", &Candidate::micro_batches)
      .def_ro("ranks", &Candidate::ranks)
      .def_ro("replicas", &Candidate::replicas)
      .def_ro("stages", &Candidate::stages, "The first layer of each stage.")
      .def_ro("devices", &Candidate::devices, "Of a cluster, by world rank (pipeline rank * replicas + replica).")
      .def_ro("recomputed", &Candidate::recomputed, "Blocks, and layers outside of blocks.")
      .def_prop_ro("memory_limit", [](const Candidate& one) { return text_of(one.memory_limit); })
      .def_prop_ro("needed_limit", [](const Candidate& one) { return text_of(one.needed_limit); })
      .def_prop_ro("weight_gradients", [](const Candidate& one) { return to_string(one.weight_gradients); })
      .def_prop_ro("partition_kind", [](const Candidate& one) { return to_string(one.partition); })
      .def_ro("is_exact", &Candidate::is_exact)
      .def_ro("fits", &Candidate::fits)
      .def_prop_ro(
          "makespan",
          [](const Candidate& one) { return one.fits ? std::optional(one.prediction.makespan) : std::nullopt; })
      .def_prop_ro(
          "bubble",
          [](const Candidate& one) { return one.fits ? std::optional(one.prediction.bubble_makespan) : std::nullopt; })
      .def_prop_ro("memory_bytes", [](const Candidate& one) { return one.prediction.memory_bytes; })
      .def("__repr__", [](const Candidate& one) { return say("Candidate(", describe(one), ")"); });
}

/// Numbers to try: one, several, or any.
using Numbers = std::optional<std::variant<int, std::vector<int>>>;
/// The name of a generator, or a schedule.
using OneSchedule = std::variant<std::string, Schedule>;

std::vector<int> numbers_of(const Numbers& numbers) {
  if (!numbers) return {};
  if (const auto* one = std::get_if<int>(&*numbers)) return {*one};
  return std::get<std::vector<int>>(*numbers);
}

void construct_constraints(PlanConstraints* self, const Numbers& ranks, const std::vector<OneSchedule>& schedules,
                           std::string weight_gradients, const GivenLimit& memory_limit,
                           const std::optional<std::string>& target, const std::optional<std::string>& cluster,
                           const Numbers& replicas, bool recompute, bool overlap_reduction, bool shard_optimizer,
                           std::optional<double> time_limit) {
  require<ConfigError>(!target || *target == "torch", "target = '", target.value_or(""),
                       "': pass 'torch', or nothing for Penstock");
  if (target) {
    require<ConfigError>(weight_gradients == "auto" || weight_gradients == "stream",
                         "target = 'torch' with weight_gradients = '", weight_gradients, "': torch has 'stream' only");
    weight_gradients = "stream";
  }
  const auto mode = weight_gradients_named(weight_gradients);
  require<ConfigError>(mode.has_value(), "weight_gradients = '", weight_gradients,
                       "': pass 'stream', 'fused' or 'auto'");
  constexpr double time_limit_for_clusters = 7;  // s
  PlanConstraints made{.weight_gradients = *mode,
                       .memory_limit = limit_of(memory_limit),
                       .cluster = cluster ? std::optional(cluster_of(*cluster)) : std::nullopt,
                       .ranks = numbers_of(ranks),
                       .replicas = numbers_of(replicas),
                       .recompute = recompute,
                       .overlaps_reduction = overlap_reduction,
                       .shards_optimizer = shard_optimizer,
                       .time_limit_s = cluster && !time_limit ? time_limit_for_clusters : time_limit,
                       .progress = stop_on_signal};
  for (const OneSchedule& one : schedules)
    if (const auto* name = std::get_if<std::string>(&one))
      made.schedules.push_back(*name);
    else
      made.own_schedules.push_back(std::get<Schedule>(one));
  new (self) PlanConstraints(std::move(made));
}

/// A method that calls the function of this name in penstock.exporting.
auto exported(const char* name) {
  return [name](nb::handle self, const nb::kwargs& options) {
    return nb::module_::import_("penstock.exporting").attr(name)(self, **options);
  };
}

void bind_plan(nb::module_& module) {
  nb::class_<Plan>(module, "Plan", "A partition and a schedule, with the predicted step.")
      .def_ro("stages", &Plan::stages, "The layers of each stage, by name.")
      .def_ro("schedule", &Plan::schedule)
      .def_ro("time_unit", &Plan::time_unit)
      .def_ro("replicas", &Plan::replicas)
      .def_ro("devices", &Plan::devices, "Of a cluster, by world rank (pipeline rank * replicas + replica).")
      .def_ro("recompute", &Plan::recompute, "Blocks, and layers outside of blocks.")
      .def_prop_ro("weight_gradients", [](const Plan& plan) { return to_string(plan.weight_gradients); })
      .def_prop_ro("makespan", [](const Plan& plan) { return plan.prediction.makespan; })
      .def_prop_ro("bubble", [](const Plan& plan) { return plan.prediction.bubble_makespan; })
      .def_prop_ro("memory_bytes", [](const Plan& plan) { return plan.prediction.memory_bytes; })
      .def_prop_ro("partition", &partition_of, "The first layer of each stage but the first, for --partition.")
      .def_static("from_text", &read_plan, "text"_a)
      .def(
          "to_torch_csv",
          [](nb::handle self, const std::optional<std::string>& path) {
            return self.attr("schedule").attr("to_torch_csv")(path);
          },
          "path"_a = nb::none(), nb::sig("def to_torch_csv(self, path: str | None = None) -> str"),
          "The schedule as CSV of torch.distributed.pipelining, which is also written to `path`.")
      .def("to_megatron", exported("to_megatron"), nb::sig("def to_megatron(self, **options: typing.Any) -> str"),
           "The --pipeline-model-parallel-layout of Megatron-LM; see penstock.exporting.")
      .def("to_torchtitan", exported("to_torchtitan"),
           nb::sig("def to_torchtitan(self, **options: typing.Any) -> dict[str, typing.Any]"),
           "The configuration of torchtitan; see penstock.exporting.")
      .def(
          "_repr_svg_", [](nb::handle self) { return self.attr("schedule").attr("_repr_svg_")(); },
          nb::sig("def _repr_svg_(self) -> str"))
      .def("to_text", &write_plan, "The text of a plan file, for penstock train --plan.")
      .def(
          "__eq__", [](const Plan& self, const Plan& other) { return self == other; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"));
}

}  // namespace

void bind_plans(nb::module_& module) {
  bind_candidate(module);
  bind_plan(module);
  nb::class_<Planned>(module, "Planned", "What the planner chose, and what else it tried.")
      .def_ro("best", &Planned::plan)
      .def_ro("candidates", &Planned::candidates, "Those that fit, the shortest step first; then the others.")
      .def_ro("left_out", &Planned::left_out, "Schedules that could not be tried, and the reasons.")
      .def_prop_ro("explanation", [](const Planned& planned) { return explanation(planned); })
      .def("__str__", [](const Planned& planned) { return to_table(planned); });
  nb::class_<ScalePoint>(module, "ScalePoint", "The plan for the first devices of a cluster.")
      .def_ro("devices", &ScalePoint::devices)
      .def_ro("chosen", &ScalePoint::chosen)
      .def_ro("step", &ScalePoint::step)
      .def_ro("samples_per_unit", &ScalePoint::samples_per_unit, "Samples per unit of time.")
      .def_ro("efficiency", &ScalePoint::efficiency, "Samples per time and device, relative to the first point.");
  nb::class_<PlanConstraints>(module, "PlanConstraints", "What the planner may choose. Made by penstock.plan().")
      .def("__init__", &construct_constraints, nb::kw_only(), "ranks"_a = nb::none(),
           "schedules"_a = std::vector<OneSchedule>{}, "weight_gradients"_a = "auto", "memory_limit"_a = nb::none(),
           "target"_a = nb::none(), "cluster"_a = nb::none(), "replicas"_a = nb::none(), "recompute"_a = false,
           "overlap_reduction"_a = false, "shard_optimizer"_a = false, "time_limit"_a = nb::none());
  const auto costs_of = [](std::string_view text, const std::vector<int>& micro_batches) {
    LayerCosts costs = with_cost_errors([&] { return read_layer_costs(text); });
    if (!micro_batches.empty()) costs.micro_batches = micro_batches;
    return costs;
  };
  module.def(
      "plan",
      [costs_of](std::string_view costs, const std::vector<int>& micro_batches, const PlanConstraints& constraints) {
        return make_plan(costs_of(costs, micro_batches), constraints);
      },
      "costs"_a, "micro_batches"_a, "constraints"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "stage_costs",
      [](const Plan& plan, std::string_view costs, const PlanConstraints& constraints) {
        return stage_costs_of(plan, read_layer_costs(costs), constraints);
      },
      "plan"_a, "costs"_a, "constraints"_a);
  module.def(
      "scaling_curve",
      [costs_of](std::string_view costs, const std::vector<int>& micro_batches, const PlanConstraints& constraints,
                 const std::vector<int>& devices) {
        return scaling_curve(costs_of(costs, micro_batches), constraints, devices);
      },
      "costs"_a, "micro_batches"_a, "constraints"_a, "devices"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "scaling_table", [](const std::vector<ScalePoint>& points) { return to_table(points); }, "points"_a);
  module.def(
      "placed_costs",
      [](const StageCosts& costs, const Schedule& schedule, std::string_view cluster, const std::string& time_unit,
         double message_bytes, int replicas, double gradient_bytes) {
        return placed_costs(costs, schedule, cluster_of(cluster), {time_unit, message_bytes, replicas, gradient_bytes});
      },
      "costs"_a, "schedule"_a, "cluster"_a, "time_unit"_a, "message_bytes"_a, "replicas"_a, "gradient_bytes"_a);
}

}  // namespace penstock::python
