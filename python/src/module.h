// The parts of the module _planning. The package penstock (src/penstock) gives them their public names.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock::python {

/// Schedules: generated, given as orders, read, checked, simulated, drawn and written.
void bind_schedules(nanobind::module_& module);
/// Costs of layers, and the plans made from them.
void bind_plans(nanobind::module_& module);

}  // namespace penstock::python
