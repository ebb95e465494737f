#include "penstock/model/sequence_memory.h"

#include "penstock/base/error.h"
#include "penstock/model/random_place.h"

namespace penstock {
namespace {

thread_local SequenceMemory* memory_of_thread = nullptr;

}  // namespace

SequenceMemory* SequenceMemory::current() { return memory_of_thread; }

std::vector<torch::Tensor>& SequenceMemory::of_call() {
  const RandomPlace* place = RandomPlace::current();
  require<InternalError>(place != nullptr, "SequenceMemory::of_call() is called outside a pipeline's call");
  const auto known = by_call_.find(place->call);
  return known != by_call_.end() ? known->second : by_call_[std::string(place->call)];
}

SequenceMemoryGuard::SequenceMemoryGuard(SequenceMemory* memory) : before_(memory_of_thread) {
  memory_of_thread = memory;
}
SequenceMemoryGuard::~SequenceMemoryGuard() { memory_of_thread = before_; }

}  // namespace penstock
