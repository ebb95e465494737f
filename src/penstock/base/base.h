// The public header of the module `base`, which every other module may include.
#pragma once

#include "penstock/base/error.h"
#include "penstock/base/ids.h"
#include "penstock/base/log.h"
#include "penstock/base/split.h"
