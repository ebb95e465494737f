// Everything that a program on Penstock needs: the public headers of the modules.
#pragma once

#include "penstock/base/base.h"
#include "penstock/checkpoint/checkpoint.h"
#include "penstock/data/data.h"
#include "penstock/data/dataset.h"
#include "penstock/data/find_data.h"
#include "penstock/model/model.h"
#include "penstock/plan/plan.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/schedule/schedule.h"
#include "penstock/trace/trace.h"
#include "penstock/train/train.h"
#include "penstock/transport/transport.h"
#include "penstock/zoo/zoo.h"
