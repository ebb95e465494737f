// The door of the room `zoo`: ready models.
#pragma once

#include "penstock/zoo/mlp.h"
#include "penstock/zoo/tied_language_model.h"
