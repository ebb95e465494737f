#include "penstock/kernels/kernels.h"

#include "penstock/base/error.h"
#include "penstock/kernels/kernel_selection.h"
#include "penstock/kernels/no_pack_linear.h"

namespace penstock {

std::shared_ptr<const KernelSelection> kernels_from(Kernels kernels, const std::string& selection) {
  if (kernels == Kernels::fixed) return std::make_shared<const KernelSelection>();
  require<ConfigError>(!selection.empty(),
                       "tuned kernels are selected by measuring: give the options to autotune() "
                       "first, or set kernel_selection");
  const KernelSelection chosen = KernelSelection::from_text(selection);
  require<ConfigError>(has_no_pack_linear() || !chosen.has(LinearKernel::no_pack),
                       "the kernel selection contains kernels of BLIS ('streamed'), and this Penstock was built "
                       "without it: build it where libblis-serial-dev is installed, or select kernels without BLIS");
  return std::make_shared<const KernelSelection>(chosen);
}

}  // namespace penstock
