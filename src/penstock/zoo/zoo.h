// The public header of the module `zoo`: ready models.
#pragma once

#include "penstock/zoo/gpt.h"
#include "penstock/zoo/mlp.h"
#include "penstock/zoo/resnet.h"
#include "penstock/zoo/tied_language_model.h"
#include "penstock/zoo/unet.h"
#include "penstock/zoo/vit.h"
