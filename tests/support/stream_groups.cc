#include "tests/support/stream_groups.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "penstock/transport/device_hand_over.h"
#include "tests/support/test_device.h"

namespace penstock::test {
using namespace transport;
namespace {

/// One direction between two ranks, with both of its ends. Whichever of a send and its receive comes later copies.
struct Lane {
  /// A send or a receive.
  struct End {
    torch::Tensor tensor;
    c10::Stream stream;                // of its group
    std::optional<c10::Event> done{};  // on it, once the two have met
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<End>> sends, receives;  // that have not met
  bool is_aborted = false;

  void add(std::deque<std::shared_ptr<End>>& to, const std::shared_ptr<End>& end) {
    {
      const std::lock_guard lock(mutex);
      require_no_abort();
      to.push_back(end);
      if (!sends.empty() && !receives.empty()) {
        meet(*sends.front(), *receives.front());
        sends.pop_front();
        receives.pop_front();
      }
    }
    changed.notify_all();
  }
  void require_no_abort() const {
    if (is_aborted) throw std::runtime_error("the group was aborted");
  }

 private:
  static void meet(End& send, End& receive) {
    if (send.tensor.nbytes() != receive.tensor.nbytes()) throw std::runtime_error("a receive of another length");
    event_on(send.stream).block(receive.stream);
    {
      // Of two streams on one device the last one is the current one.
      const c10::MultiStreamGuard guard({send.stream, receive.stream});
      const c10::StreamGuard of_receiver(receive.stream);
      receive.tensor.copy_(send.tensor);
    }
    event_on(receive.stream).block(send.stream);
    for (End* end : {&send, &receive}) {
      end->done = event_on(end->stream);
      end->tensor.reset();
    }
  }
};

class Transfer final : public c10d::Work {
 public:
  Transfer(std::shared_ptr<Lane> lane, std::shared_ptr<Lane::End> end) : lane_(std::move(lane)), end_(std::move(end)) {}

  bool isCompleted() override {
    const std::lock_guard lock(lane_->mutex);
    return end_->done && end_->done->query();
  }
  bool isSuccess() const override { return true; }
  void synchronize() override { wait(kNoTimeout); }
  // Operations on test devices run at once, so that the thread has to wait for what its stream waits for.
  bool wait(std::chrono::milliseconds) override {
    std::unique_lock lock(lane_->mutex);
    lane_->changed.wait(lock, [this] { return lane_->is_aborted || end_->done; });
    lane_->require_no_abort();
    end_->done->block(current_stream(end_->done->device()));
    return true;
  }

 private:
  const std::shared_ptr<Lane> lane_;
  const std::shared_ptr<Lane::End> end_;
};

class StreamGroup final : public c10d::Backend {
 public:
  StreamGroup(std::shared_ptr<Lane> lane, ProcessRank own) : Backend(own.rank, own.size), lane_(std::move(lane)) {}

  const std::string getBackendName() const override { return "streams"; }

  c10::intrusive_ptr<c10d::Work> send(std::vector<torch::Tensor>& tensors, int, int) override {
    return begin(lane_->sends, tensors);
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<torch::Tensor>& tensors, int, int) override {
    return begin(lane_->receives, tensors);
  }

  void abort() override {
    {
      const std::lock_guard lock(lane_->mutex);
      lane_->is_aborted = true;
    }
    lane_->changed.notify_all();
  }

 private:
  c10::intrusive_ptr<c10d::Work> begin(std::deque<std::shared_ptr<Lane::End>>& ends,
                                       const std::vector<torch::Tensor>& tensors) {
    const torch::Tensor& tensor = tensors.front();
    const c10::Stream& own = streams_.of(tensor.device());
    event_on(current_stream(tensor.device())).block(own);
    const auto end = std::make_shared<Lane::End>(Lane::End{tensor, own});
    lane_->add(ends, end);
    return c10::make_intrusive<Transfer>(lane_, end);
  }

  const std::shared_ptr<Lane> lane_;
  LinkStreams streams_;
};

/// The lane that both ends of a group know by a number in their store.
std::shared_ptr<Lane> lane_of(c10d::Store& store, bool is_first) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Lane>> lanes;
  static int made = 0;
  if (is_first) {
    const std::lock_guard lock(mutex);
    const std::string number = std::to_string(made++);
    const auto lane = lanes[number] = std::make_shared<Lane>();
    store.set("lane", std::vector<std::uint8_t>(number.begin(), number.end()));
    return lane;
  }
  const std::vector<std::uint8_t> number = store.get("lane");
  const std::lock_guard lock(mutex);
  return std::move(lanes.extract({number.begin(), number.end()}).mapped());
}

}  // namespace

DeviceGroups stream_groups() {
  return {
      "streams", test_device().type(), [](const c10::intrusive_ptr<c10d::Store>& store, ProcessRank own) {
        return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<StreamGroup>(lane_of(*store, own.rank == 0), own));
      }};
}

}  // namespace penstock::test
