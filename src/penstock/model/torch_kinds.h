// The module classes of torch whose forward takes only tensors. Internal to this module.
#pragma once

#include "penstock/model/callable_kind.h"

namespace penstock {

const std::vector<CallableKind>& torch_kinds();

}  // namespace penstock
