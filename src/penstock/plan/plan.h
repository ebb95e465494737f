// The door of the room `plan`: costs in; cut, schedule and prediction out.
#pragma once

#include "penstock/plan/advice.h"
#include "penstock/plan/cost_list.h"
#include "penstock/plan/cut.h"
#include "penstock/plan/fit_spread.h"
#include "penstock/plan/layer_costs.h"
#include "penstock/plan/partition.h"
#include "penstock/plan/plan_file.h"
#include "penstock/plan/plan_report.h"
#include "penstock/plan/planner.h"
#include "penstock/plan/stage_costs.h"
#include "penstock/plan/stage_layers.h"
