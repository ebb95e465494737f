#include "penstock/base/cuda_graph.h"

namespace penstock {

bool has_cuda_graphs() { return false; }
std::unique_ptr<at::GraphImplInterface> make_cuda_graph() { return nullptr; }

}  // namespace penstock
