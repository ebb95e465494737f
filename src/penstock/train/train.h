// The door of the room `train`: optimisers, and a Trainer that runs the loop for you.
#pragma once

#include "penstock/train/hook.h"
#include "penstock/train/hooks.h"
#include "penstock/train/lr_schedule.h"
#include "penstock/train/optimizers.h"
#include "penstock/train/trainer.h"
