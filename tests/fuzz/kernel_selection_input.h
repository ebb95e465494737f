// The function under test of the fuzzer of kernel selections, which plans and tuning files hold. The test that replays
// its corpus calls it too. It throws if a property does not hold. Refusing the input is correct.
#pragma once

#include <string>
#include <string_view>

#include "penstock/base/error.h"
#include "penstock/kernels/kernel_selection.h"

namespace penstock {

inline void try_kernel_selection(std::string_view text) {
  KernelSelection selection = KernelSelection::fixed();
  try {
    selection = KernelSelection::from_text(text);
  } catch (const DataError&) {
    return;
  }
  const std::string written = selection.to_text();
  require<InternalError>(KernelSelection::from_text(written).to_text() == written, "it does not read back");
  selection.fingerprint();
}

}  // namespace penstock
