#include "tests/support/test_device_graph.h"

#include <cstring>
#include <string>
#include <utility>

#include <ATen/core/GraphImplInterface.h>
#include <c10/core/StreamGuard.h>

#include "tests/support/test_device.h"
#include "tests/support/test_device_memory.h"

namespace penstock::test {
namespace {

thread_local Capture* capture_of_thread = nullptr;

class TestGraph final : public at::GraphImplInterface {
 public:
  explicit TestGraph(const at::GraphImplArgs&) {}

  void capture_begin(at::MempoolId_t, at::GraphCaptureMode) override {
    capture_ = std::make_unique<Capture>(stream_of(current_test_stream()));
  }
  void capture_end() override { capture_->end(); }
  void instantiate() override {}
  void replay() override { capture_->replay(); }
  void reset() override { capture_.reset(); }
  at::MempoolId_t pool() const override { return {0, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string&) override {}

 private:
  std::unique_ptr<Capture> capture_;
};

}  // namespace

Capture* Capture::current() { return capture_of_thread; }

void Capture::refuse(const char* what) {
  if (capture_of_thread) throw CaptureError(std::string(what) + " in a capture");
}

Capture::Capture(const c10::Stream& origin) : origin_(number_of(origin)) {
  refuse("a capture");
  if (origin_.stream == 0) throw CaptureError("a capture on the default stream");
  streams_[origin_.index()] = {};
  capture_of_thread = this;
}

Capture::~Capture() {
  if (capture_of_thread == this) capture_of_thread = nullptr;
}

void Capture::require(StreamNumber stream) const {
  if (contains(stream)) return;
  throw CaptureError("work on stream " + std::to_string(stream.stream) + ", which is not part of the capture");
}

void Capture::add(std::function<void()> work) {
  const StreamNumber stream = current_test_stream();
  require(stream);
  ++streams_[stream.index()][stream.index()];
  work_.push_back({stream.index(), std::move(work)});
}

std::shared_ptr<Capture::Event> Capture::record(StreamNumber stream) {
  auto event = std::make_shared<Event>(Event{this, streams_.at(stream.index())});
  work_.push_back({stream.index(), [event] { event->replayed = stream_order().record(current_test_stream()); }});
  return event;
}

void Capture::wait(StreamNumber stream, const std::shared_ptr<Event>& event) {
  if (event->capture != this) throw CaptureError("a stream waits for an event of another capture");
  join(streams_[stream.index()], event->captured);
  work_.push_back({stream.index(), [event] { stream_order().wait(current_test_stream(), event->replayed); }});
}

at::Tensor Capture::use(const at::Tensor& tensor) {
  at::Tensor other = in_the_memory_of(tensor);
  if (own_blocks_.contains(tensor.storage().data())) {
    own_memory_.emplace(tensor.storage().unsafeGetStorageImpl(), tensor.storage());
    return other;
  }
  const auto [known, is_new] = borrowed_.try_emplace(tensor.storage().unsafeGetStorageImpl());
  if (is_new) known->second.storage = tensor.storage();
  ++known->second.uses;
  return other;
}

void Capture::end() {
  capture_of_thread = nullptr;
  has_ended_ = true;
  const StreamClock& joined = streams_.at(origin_.index());
  for (const auto& [index, known] : streams_)
    if (joined[index] < known[index])
      throw CaptureError("stream " + std::to_string(StreamNumber::at(index).stream) +
                         " is not joined at the end of a " + "capture");
}

void Capture::replay() {
  refuse("a replay");
  if (!has_ended_) throw CaptureError("a replay before the end of the capture");
  for (const auto& [storage, borrowed] : borrowed_)
    if (borrowed.storage.use_count() <= borrowed.uses)
      throw CaptureError("a graph uses memory that was freed since its capture");
  for (const auto& [known, memory] : own_memory_) std::memset(memory.mutable_data(), 0xee, memory.nbytes());
  const StreamNumber launch = current_test_stream();
  StreamOrder& order = stream_order();
  for (const auto& [index, known] : streams_) order.wait(StreamNumber::at(index).of_replays(), order.record(launch));
  for (const Work& work : work_) {
    const c10::StreamGuard guard(stream_of(StreamNumber::at(work.stream).of_replays()));
    work.run();
  }
  for (const auto& [index, known] : streams_) order.wait(launch, order.record(StreamNumber::at(index).of_replays()));
}

}  // namespace penstock::test

namespace at {
C10_REGISTER_CLASS(GraphImplRegistry, TEST, penstock::test::TestGraph)
}
