// The public header of the module `checkpoint`: named tensors in files that other programs can read, and checkpoints of
// a training.
#pragma once

#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/checkpoint/checkpoint_writer.h"
#include "penstock/checkpoint/export_weights.h"
#include "penstock/checkpoint/rank_files.h"
#include "penstock/checkpoint/safetensors.h"
