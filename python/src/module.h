// The parts of the module _planning. The package penstock (src/penstock) gives them their public names.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include <nanobind/nanobind.h>

#include "penstock/base/error.h"
#include "penstock/schedule/memory_limit.h"

namespace penstock::python {

/// Costs that cannot be read or do not fit a schedule, for Python: a DataError and a ConfigError.
class CostError : public Misuse {
 public:
  using Misuse::Misuse;
};

/// The result of `read`, whose errors of costs become CostErrors.
template <class Read>
auto with_cost_errors(Read&& read) {
  try {
    return read();
  } catch (const ConfigError& error) {
    throw CostError(error.what());
  } catch (const DataError& error) {
    throw CostError(error.what());
  }
}

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
