// Terms of a step that are fitted to measured steps, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "module.h"
#include "penstock/plan/plan.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock::python {
namespace {

/// A fit with the steps that it was made for.
struct Fit {
  TermFit fit;
  std::vector<MeasuredStep> steps;
};

}  // namespace

void bind_fits(nb::module_& module) {
  nb::class_<MeasuredStep>(module, "MeasuredStep", "A step that was run: its schedule, costs without terms, and time.")
      .def(
          "__init__",
          [](MeasuredStep* self, const Schedule& schedule, const StageCosts& costs, double measured, bool overlaps,
             const std::string& label) {
            new (self) MeasuredStep{schedule, costs, measured, overlaps, label};
          },
          "schedule"_a, "costs"_a, "measured"_a, nb::kw_only(), "overlaps"_a = false, "label"_a = "")
      .def_ro("label", &MeasuredStep::label)
      .def_ro("measured", &MeasuredStep::measured)
      .def_rw("overlaps", &MeasuredStep::overlaps)
      .def("predicted", &predicted_step, "terms"_a, nb::call_guard<nb::gil_scoped_release>(),
           "The time of the step with these terms.");
  nb::class_<Fit>(module, "Fit", "Fitted terms, and how well they predict the measured steps.")
      .def_prop_ro("terms", [](const Fit& one) { return one.fit.terms; })
      .def_prop_ro(
          "predicted", [](const Fit& one) { return one.fit.predicted; }, "Of each step.")
      .def_prop_ro(
          "errors", [](const Fit& one) { return one.fit.errors; }, "Of each step: predicted / measured - 1.")
      .def_prop_ro("median_error", [](const Fit& one) { return one.fit.median_error; })
      .def_prop_ro("worst_error", [](const Fit& one) { return one.fit.worst_error; })
      .def_prop_ro(
          "worst_error_without", [](const Fit& one) { return one.fit.worst_error_without; }, "Without any terms.")
      .def_prop_ro(
          "warnings", [](const Fit& one) { return one.fit.warnings; }, "What these steps cannot decide.")
      .def("__str__", [](const Fit& one) { return to_table(one.fit, one.steps); });
  module.def(
      "measured_steps",
      [](std::string_view costs, std::string_view runs) { return read_measured_runs(runs, read_layer_costs(costs)); },
      "costs"_a, "runs"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "fit",
      [](const std::vector<MeasuredStep>& steps, const std::string& terms) {
        return Fit{fit_terms(steps, fitted_terms_named(terms)), steps};
      },
      "steps"_a, "terms"_a, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace penstock::python
