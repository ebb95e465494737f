// The public header of the module `train`: optimisers, a Trainer that runs the training loop, and text generation.
#pragma once

#include "penstock/train/checkpoint_hook.h"
#include "penstock/train/generator.h"
#include "penstock/train/hook.h"
#include "penstock/train/hooks.h"
#include "penstock/train/lr_schedule.h"
#include "penstock/train/optimizers.h"
#include "penstock/train/trainer.h"
