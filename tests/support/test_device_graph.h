// Graphs of the test device, with the rules of CUDA: what a thread queues while it captures is not executed but recorded,
// and a replay executes the record without the code that made it. What would be wrong on a real device is an error:
//   * a wait of the host, a copy from or to its memory, and a random number in a capture;
//   * work on a stream that is not part of the capture, or that is part of it and not joined at its end;
//   * an event of a capture outside of it, and an event of outside in a capture;
//   * a replay whose memory somebody else has freed. Memory that is allocated in a capture belongs to the graph.
// LibTorch gives memory that is freed in a capture to other work of it. So a replay begins with other bytes in all memory
// of its graph, and what the host writes there between replays is lost.
// A replay runs on streams of its own, which are ordered behind the stream that it is queued on and before the next work
// of that stream.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include "tests/support/stream_order.h"

namespace penstock::test {

/// An error of LibTorch, as those of CUDA are.
class CaptureError : public c10::Error {
 public:
  explicit CaptureError(const std::string& what) : c10::Error({__func__, __FILE__, __LINE__}, what) {}
};

/// Used by the thread that captures, and then by one that replays.
class Capture {
 public:
  /// An event that was recorded in a capture.
  struct Event {
    const Capture* capture = nullptr;
    StreamClock captured{};  // the work before it, by number in the capture
    StreamClock replayed{};  // in the newest replay
  };

  /// That of the calling thread; null where its work is executed.
  static Capture* current();
  /// Throws CaptureError where the calling thread captures.
  static void refuse(const char* what);

  explicit Capture(const c10::Stream& origin);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  StreamNumber origin() const { return origin_; }
  bool contains(StreamNumber stream) const { return streams_.contains(stream.index()); }

  /// Records `work`, which a replay executes with its own stream as the current one in place of the present one.
  void add(std::function<void()> work);
  std::shared_ptr<Event> record(StreamNumber stream);
  void wait(StreamNumber stream, const std::shared_ptr<Event>& event);
  /// Memory that is allocated now.
  void allocated(const void* block) { own_blocks_.insert(block); }
  /// `tensor` for recorded work: another one in the same memory. A replay requires that somebody else has the memory,
  /// too, where it is not the graph's own.
  at::Tensor use(const at::Tensor& tensor);

  /// Ends the capture. Throws CaptureError where a stream was not joined.
  void end();
  void replay();

 private:
  struct Work {
    std::size_t stream = 0;
    std::function<void()> run;
  };
  struct Borrowed {
    c10::Storage storage;
    std::size_t uses = 1;  // by this graph, this one included
  };

  void require(StreamNumber stream) const;

  const StreamNumber origin_;
  bool has_ended_ = false;
  std::unordered_map<std::size_t, StreamClock> streams_;  // captured ones, by index, with the work known on them
  std::vector<Work> work_;
  std::set<const void*> own_blocks_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> own_memory_;  // that recorded work uses
  std::unordered_map<const c10::StorageImpl*, Borrowed> borrowed_;
};

}  // namespace penstock::test
