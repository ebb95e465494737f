#include "penstock/world/rank_device.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace penstock {

RankDevice::RankDevice(c10::Device device) : device_(device) {
  if (!device.is_cpu()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

}  // namespace penstock
