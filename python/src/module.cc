#include "module.h"

#include <nanobind/stl/string.h>

#include "penstock/base/base.h"
#include "penstock/base/error.h"

namespace nb = nanobind;

namespace penstock::python {
namespace {

/// The library's classes of errors, with the same names; the last one that fits is the one that Python gets.
void bind_errors(nb::module_& module) {
  nb::exception<Misuse> misuse(module, "Misuse", PyExc_ValueError);
  nb::exception<ConfigError>(module, "ConfigError", misuse.ptr());
  nb::exception<ScheduleError> schedule(module, "ScheduleError", misuse.ptr());
  for (const char* place : {"rank", "position"}) schedule.attr(place) = nb::none();  // of the first violation
  nb::exception<DataError>(module, "DataError", misuse.ptr());
  nb::exception<Failure>(module, "Failure", PyExc_RuntimeError);
  nb::exception<InternalError>(module, "InternalError", PyExc_RuntimeError);
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
