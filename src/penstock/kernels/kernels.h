// The public header of the module `kernels`: the choice between LibTorch's kernels and kernels tuned for a machine.
#pragma once

#include <memory>
#include <string>

namespace penstock {

/// How the kernels of layers are chosen. The last bits of results depend on the kernels.
enum class Kernels {
  fixed,  // LibTorch's; nothing is measured
  tuned   // the fastest for each layer's shape on this machine; the first process measures for all
};

class KernelSelection;

/// The selection that layers use: LibTorch's kernels with Kernels::fixed, otherwise that of the text `selection`
/// (KernelSelection::to_text). Throws ConfigError for tuned kernels with an empty selection and for a selected kernel
/// that this build lacks, and DataError for a malformed selection.
std::shared_ptr<const KernelSelection> kernels_from(Kernels kernels, const std::string& selection);

}  // namespace penstock
