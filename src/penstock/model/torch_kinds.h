// The modules of torch that can be called with tensors alone. Inside this module only.
#pragma once

#include "penstock/model/callable_kind.h"

namespace penstock {

const std::vector<CallableKind>& torch_kinds();

}  // namespace penstock
