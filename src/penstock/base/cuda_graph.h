// CUDA graphs for LibTorch's interface of graphs, in which it has none (device_graph.h). A build has them where it has
// NCCL: both need the headers of CUDA.
#pragma once

#include <memory>

#include <ATen/core/GraphImplInterface.h>

namespace penstock {

bool has_cuda_graphs();
/// One that instantiates nothing before instantiate(). Null where has_cuda_graphs() is false.
std::unique_ptr<at::GraphImplInterface> make_cuda_graph();

}  // namespace penstock
