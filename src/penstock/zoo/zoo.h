// The door of the room `zoo`: ready models.
#pragma once

#include "penstock/zoo/mlp.h"
