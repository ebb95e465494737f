#include "penstock/base/cuda_graph.h"

#include <string>

#include <ATen/cuda/CUDAGraph.h>

namespace penstock {
namespace {

cudaStreamCaptureMode of_cuda(at::GraphCaptureMode mode) {
  switch (mode) {
    case at::GraphCaptureMode::ThreadLocal: return cudaStreamCaptureModeThreadLocal;
    case at::GraphCaptureMode::Relaxed: return cudaStreamCaptureModeRelaxed;
    default: return cudaStreamCaptureModeGlobal;
  }
}

class CudaGraph final : public at::GraphImplInterface {
 public:
  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode mode) override {
    graph_.capture_begin(pool, of_cuda(mode));
  }
  void capture_end() override { graph_.capture_end(); }
  void instantiate() override { graph_.instantiate(); }
  void replay() override { graph_.replay(); }
  void reset() override { graph_.reset(); }
  at::MempoolId_t pool() const override { return graph_.pool(); }
  void enable_debug_mode() override { graph_.enable_debug_mode(); }
  void debug_dump(const std::string& path) override { graph_.debug_dump(path); }

 private:
  mutable at::cuda::CUDAGraph graph_{/*keep_graph=*/true};  // its pool() is not const
};

}  // namespace

bool has_cuda_graphs() { return true; }
std::unique_ptr<at::GraphImplInterface> make_cuda_graph() { return std::make_unique<CudaGraph>(); }

}  // namespace penstock
