// The public header of the module `kernels`: the choice between LibTorch's kernels and kernels tuned for a machine.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace penstock {

/// How the kernels of layers are chosen. The last bits of results depend on the kernels.
enum class Kernels {
  fixed,  // LibTorch's; nothing is measured
  tuned   // the fastest for each layer's shape on this machine; the first process measures for all
};

/// Whether this build contains the tuned kernels: the CMake option PENSTOCK_CPU_KERNELS.
bool has_cpu_kernels();

/// Throws ConfigError for Kernels::tuned in a build without the tuned kernels.
void require_kernels(Kernels kernels);

/// Whether the processor that the file describes multiplies bf16 itself (AVX512-BF16, AMX, or bf16 of ARM). Without that,
/// products of Precision::bf16 take longer than in fp32.
bool multiplies_bf16(const std::string& cpuinfo = "/proc/cpuinfo");

}  // namespace penstock

namespace penstock::kernels {

class KernelSelection;

/// Whether the processor that the file describes has any of `features`, by their names in it.
bool processor_has(std::initializer_list<std::string_view> features, const std::string& cpuinfo = "/proc/cpuinfo");

/// The selection that layers use: LibTorch's kernels with Kernels::fixed, otherwise the one of the text `selection`
/// (KernelSelection::to_text). Throws ConfigError for tuned kernels with an empty selection and for kernels that this
/// build lacks, and DataError for a malformed selection.
std::shared_ptr<const KernelSelection> kernels_from(Kernels kernels, const std::string& selection);

}  // namespace penstock::kernels
