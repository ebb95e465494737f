#include "penstock/base/device_graph.h"

#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>

#include "penstock/base/cuda_graph.h"
#include "penstock/base/error.h"

namespace penstock {
namespace {

thread_local bool captures = false;

/// In a capture LibTorch takes new memory, and does not give back to the device what it keeps for later: by then that
/// is a whole step's.
void give_back_unused_memory(c10::DeviceType type) {
  if (auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(type))) allocator->emptyCache();
}

/// LibTorch's allocator refers to a graph whose capture has failed, so that it is never destroyed.
void keep_for_ever(std::unique_ptr<at::GraphImplInterface> graph) {
  static auto* kept = new std::vector<std::unique_ptr<at::GraphImplInterface>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(graph));
}

}  // namespace

bool DeviceGraph::exists_for(c10::DeviceType type) {
  return at::has_graph_impl(type) || (type == c10::kCUDA && has_cuda_graphs());
}

bool DeviceGraph::is_capturing() { return captures; }

// What is captured is kept until instantiate(), which is called apart from capture_end(): its failure is another one.
DeviceGraph::DeviceGraph(c10::DeviceType type)
    : type_(type),
      graph_(at::has_graph_impl(type) ? at::create_graph_impl(type, {.keep_graph = true}) : make_cuda_graph()) {
  require<InternalError>(graph_ != nullptr, "LibTorch has no graphs for ", c10::DeviceTypeName(type, true));
}

void DeviceGraph::capture(const std::function<void()>& queue) {
  require<InternalError>(graph_ != nullptr, "a capture after one that failed");
  give_back_unused_memory(type_);
  try {
    record(queue);
  } catch (...) {
    keep_for_ever(std::move(graph_));
    throw;
  }
  try {
    graph_->instantiate();
  } catch (...) {
    graph_.reset();
    throw;
  }
  is_captured_ = true;
}

// Only this thread is kept from calls that a capture does not permit: others copy messages and watch transfers.
void DeviceGraph::record(const std::function<void()>& queue) {
  graph_->capture_begin({0, 0}, at::GraphCaptureMode::ThreadLocal);
  captures = true;
  try {
    queue();
  } catch (...) {
    captures = false;
    try {
      graph_->capture_end();           // the stream would remain in the capture
    } catch (const std::exception&) {  // the first error is the cause
    }
    throw;
  }
  captures = false;
  graph_->capture_end();
}

void DeviceGraph::replay() { graph_->replay(); }

}  // namespace penstock
