// The public header of the module `model`: a network as written for one device. layer_list.h makes one of torch's
// modules; graph.h and stages.h hold the layers that a Pipeline has traced and partitioned.
//
//   struct Network : Cell {
//     Layer in  = add("in",  [] { return torch::nn::Linear(784, 512); });
//     Layer out = add("out", [] { return torch::nn::Linear(512, 10); });
//     Value forward(Value x) override { return out(relu(in(flatten(x, 1)))); }
//   };
//
//   Network net;
//   net.in.pipeline_stage = 0;
//   net.out.pipeline_stage = 1;
#pragma once

#include "penstock/model/batch_tensors.h"
#include "penstock/model/cell.h"
#include "penstock/model/functions.h"
#include "penstock/model/layer.h"
#include "penstock/model/loss.h"
#include "penstock/model/sequence_memory.h"
#include "penstock/model/value.h"
