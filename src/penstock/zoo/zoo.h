// The door of the room `zoo`: ready models.
#pragma once

#include "penstock/zoo/attention.h"
#include "penstock/zoo/gpt.h"
#include "penstock/zoo/mlp.h"
