// The public header of the module `plan`: costs in; partition, schedule and prediction out.
#pragma once

#include "penstock/plan/advice.h"
#include "penstock/plan/candidate.h"
#include "penstock/plan/cost_list.h"
#include "penstock/plan/finalists.h"
#include "penstock/plan/layer_costs.h"
#include "penstock/plan/partition.h"
#include "penstock/plan/partition_search.h"
#include "penstock/plan/plan_file.h"
#include "penstock/plan/plan_report.h"
#include "penstock/plan/planner.h"
#include "penstock/plan/stage_cost_file.h"
#include "penstock/plan/stage_layers.h"
#include "penstock/plan/tuning_record.h"
