// The choice between LibTorch's kernels and those that are tuned for a machine.
#pragma once

#include <memory>
#include <string>

namespace penstock {

/// Which code computes a layer's products where there is a choice. The last bits depend on it.
enum class Kernels {
  fixed,  // LibTorch's: nothing is measured
  tuned   // whatever is the fastest for a layer's shape on this machine, measured on the first process for all
};

class KernelSelection;

/// What layers go by: LibTorch's kernels, or, where they are tuned, those of `selection` (KernelSelection::to_text).
/// Throws ConfigError where tuned kernels are not selected yet, and where this build lacks one that is selected.
std::shared_ptr<const KernelSelection> kernels_from(Kernels kernels, const std::string& selection);

}  // namespace penstock
