// The header for programs that train or infer: networks, data, worlds, pipelines and the training loop. Programs that
// plan, measure, or read and draw schedules and traces include the headers of plan/, schedule/, trace/ and
// pipeline/profiler.h.
#pragma once

#include "penstock/autotune/autotune.h"
#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/data/data.h"
#include "penstock/data/data_files.h"
#include "penstock/data/dataset.h"
#include "penstock/model/layer_list.h"
#include "penstock/model/model.h"
#include "penstock/pipeline/pipeline.h"
#include "penstock/pipeline/weight_average.h"
#include "penstock/text/chat.h"
#include "penstock/text/tokenizer.h"
#include "penstock/train/train.h"
#include "penstock/world/world.h"
#include "penstock/zoo/zoo.h"
