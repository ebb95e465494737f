// The public header of the module `schedule`: lists of instructions per rank, and functions that generate, lower,
// validate, simulate, read, write and draw them. The list that the executor runs is the same one that is validated,
// simulated, drawn and traced.
//
//   Schedule plan = lower(generate("1f1b", {.ranks = 2, .micro_batches = 4}));
//   validate(plan).require_ok(plan);
//   std::cout << timeline_grid(plan);
//
// All types are plain values. All functions are pure, except load_schedule(), which reads a file; any
// thread may call them.
#pragma once

#include "penstock/schedule/channel.h"
#include "penstock/schedule/channels_of.h"
#include "penstock/schedule/critical_path.h"
#include "penstock/schedule/dependencies.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/instruction.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/memory_limit.h"
#include "penstock/schedule/simulate.h"
#include "penstock/schedule/stage_costs.h"
#include "penstock/schedule/text.h"
#include "penstock/schedule/timeline_grid.h"
#include "penstock/schedule/torch_csv.h"
#include "penstock/schedule/validate.h"
#include "penstock/schedule/weight_gradients.h"
