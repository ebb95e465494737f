#include "penstock/train/hook.h"

#include <c10/util/Type.h>

#include <typeinfo>

namespace penstock {

std::string Hook::name() const { return c10::demangle(typeid(*this).name()); }

}  // namespace penstock
