// The public header of the module `checkpoint`: named tensors in files that other programs read too.
#pragma once

#include "penstock/checkpoint/safetensors.h"
