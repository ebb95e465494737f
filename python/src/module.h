// The parts of the module _planning. The package penstock (src/penstock) gives them their public names.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include <nanobind/nanobind.h>

#include "penstock/schedule/memory_limit.h"

namespace penstock::python {

/// A limit of activations as Python gives it: a multiple of 1F1B's, or a text such as "512MiB".
using GivenLimit = std::optional<std::variant<double, std::string>>;
std::optional<MemoryLimit> limit_of(const GivenLimit& limit);

/// Schedules: generated, given as orders, read, checked, simulated, drawn and written.
void bind_schedules(nanobind::module_& module);
/// Costs of layers, and the plans made from them.
void bind_plans(nanobind::module_& module);
/// Accounts of recorded steps.
void bind_accounts(nanobind::module_& module);
/// Measured steps, and terms that are fitted to them.
void bind_fits(nanobind::module_& module);

}  // namespace penstock::python
