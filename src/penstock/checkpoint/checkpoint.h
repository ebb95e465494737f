// The public header of the module `checkpoint`: named tensors in files that other programs can read.
#pragma once

#include "penstock/checkpoint/safetensors.h"
