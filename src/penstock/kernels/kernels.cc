#include "penstock/kernels/kernels.h"

#include <algorithm>
#include <fstream>

#include "penstock/base/error.h"
#include "penstock/kernels/cpu_kernels.h"

namespace penstock {

bool has_cpu_kernels() { return kernels::has_kernel(kernels::LinearKernel::bias_apart); }

void require_kernels(Kernels kernels) {
  require<ConfigError>(kernels == Kernels::fixed || has_cpu_kernels(),
                       "tuned kernels were requested (--kernels tuned, Kernels::tuned, or a plan with kernels), and "
                       "this Penstock was built without them (PENSTOCK_CPU_KERNELS=OFF): set --kernels fixed or "
                       "Kernels::fixed, or build with -DPENSTOCK_CPU_KERNELS=ON");
}

bool kernels::processor_has(std::initializer_list<std::string_view> features, const std::string& cpuinfo) {
  std::ifstream file(cpuinfo);
  for (std::string word; file >> word;)
    if (std::ranges::find(features, word) != features.end()) return true;
  return false;
}

bool multiplies_bf16(const std::string& cpuinfo) {
  return kernels::processor_has({"avx512_bf16", "amx_bf16", "bf16"}, cpuinfo);
}

std::shared_ptr<const kernels::KernelSelection> kernels::kernels_from(Kernels kernels, const std::string& selection) {
  if (kernels == Kernels::fixed) return std::make_shared<const KernelSelection>();
  require_kernels(kernels);
  require<ConfigError>(!selection.empty(),
                       "tuned kernels are selected by measuring: pass the options to autotune() "
                       "first, or set kernel_selection");
  const KernelSelection chosen = KernelSelection::from_text(selection);
  require<ConfigError>(has_kernel(LinearKernel::no_pack) || !chosen.has(LinearKernel::no_pack),
                       "the kernel selection contains kernels of BLIS ('streamed'), and this Penstock was built "
                       "without it: build it where libblis-serial-dev is installed, or select kernels without BLIS");
  return std::make_shared<const KernelSelection>(chosen);
}

}  // namespace penstock
