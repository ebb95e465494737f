// The door of the room `plan`: costs in, a cut out.
#pragma once

#include "penstock/plan/cost_list.h"
#include "penstock/plan/cut.h"
#include "penstock/plan/stage_costs.h"
