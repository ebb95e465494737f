#include "module.h"

#include <nanobind/stl/string.h>

#include "penstock/base/base.h"
#include "penstock/base/error.h"

namespace nb = nanobind;

namespace penstock::python {
namespace {

/// The library's classes of errors, with the same names, below one root; the last one that fits is the one that Python
/// gets.
void bind_errors(nb::module_& module) {
  const nb::object root = nb::steal(PyErr_NewException("penstock._planning.Error", nullptr, nullptr));
  module.attr("Error") = root;
  const nb::object bases_of_misuse = nb::make_tuple(root, nb::handle(PyExc_ValueError));
  const nb::object bases_of_failure = nb::make_tuple(root, nb::handle(PyExc_RuntimeError));
  nb::exception<Misuse> misuse(module, "Misuse", bases_of_misuse);
  nb::exception<ConfigError> config(module, "ConfigError", misuse.ptr());
  nb::exception<ScheduleError> schedule(module, "ScheduleError", misuse.ptr());
  for (const char* place : {"rank", "position"}) schedule.attr(place) = nb::none();  // of the first violation
  nb::exception<DataError> data(module, "DataError", misuse.ptr());
  nb::exception<Failure>(module, "Failure", bases_of_failure);
  nb::exception<InternalError>(module, "InternalError", bases_of_failure);
  nb::exception<CostError>(module, "CostError", nb::make_tuple(data, config));
}

}  // namespace
}  // namespace penstock::python

NB_MODULE(_planning, module) {
  penstock::python::bind_errors(module);
  penstock::python::bind_schedules(module);
  penstock::python::bind_plans(module);
  penstock::python::bind_accounts(module);
  penstock::python::bind_fits(module);
}
