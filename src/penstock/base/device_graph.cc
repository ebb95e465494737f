#include "penstock/base/device_graph.h"

#include <exception>

#include "penstock/base/cuda_graph.h"
#include "penstock/base/error.h"

namespace penstock {

bool DeviceGraph::exists_for(c10::DeviceType type) {
  return at::has_graph_impl(type) || (type == c10::kCUDA && has_cuda_graphs());
}

DeviceGraph::DeviceGraph(c10::DeviceType type)
    : graph_(at::has_graph_impl(type) ? at::create_graph_impl(type) : make_cuda_graph()) {
  require<InternalError>(graph_ != nullptr, "LibTorch has no graphs for ", c10::DeviceTypeName(type, true));
}

// Only this thread is kept from calls that a capture does not permit: others copy messages and watch transfers.
void DeviceGraph::capture(const std::function<void()>& queue) {
  graph_->capture_begin({0, 0}, at::GraphCaptureMode::ThreadLocal);
  try {
    queue();
  } catch (...) {
    try {
      graph_->capture_end();           // the stream would remain in the capture
    } catch (const std::exception&) {  // the first error is the cause
    }
    graph_->reset();
    throw;
  }
  graph_->capture_end();
  is_captured_ = true;
}

void DeviceGraph::replay() { graph_->replay(); }

}  // namespace penstock
