// The door of the room `base`: what every other room may use.
#pragma once

#include "penstock/base/error.h"
#include "penstock/base/ids.h"
#include "penstock/base/log.h"
#include "penstock/base/split.h"
