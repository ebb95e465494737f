// The public header of the module `plan`: costs in; partition, schedule and prediction out.
#pragma once

#include "penstock/plan/advice.h"
#include "penstock/plan/candidate.h"
#include "penstock/plan/cluster.h"
#include "penstock/plan/constraints.h"
#include "penstock/plan/fit_terms.h"
#include "penstock/plan/layer_costs.h"
#include "penstock/plan/measured_runs.h"
#include "penstock/plan/partition.h"
#include "penstock/plan/partition_search.h"
#include "penstock/plan/placed_costs.h"
#include "penstock/plan/plan_file.h"
#include "penstock/plan/plan_report.h"
#include "penstock/plan/planner.h"
#include "penstock/plan/scaling.h"
#include "penstock/plan/stage_cost_text.h"
