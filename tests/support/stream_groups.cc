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
namespace {

c10::Event event_on(const c10::Stream& stream) {
  c10::Event event(stream.device_type());
  event.record(stream);
  return event;
}

/// One direction between two ranks, with both of its ends.
struct Lane {
  struct Send {
    torch::Tensor tensor;
    c10::Stream stream;                // of the sender's group
    std::optional<c10::Event> done{};  // on it, once a receive has met it
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Send>> waiting;
  bool is_aborted = false;

  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    changed.wait(lock, [&] { return is_aborted || condition(); });
    if (is_aborted) throw std::runtime_error("the group was aborted");
  }
};

class Transfer final : public c10d::Work {
 public:
  Transfer(std::shared_ptr<Lane> lane, std::shared_ptr<Lane::Send> send, std::optional<c10::Event> received)
      : lane_(std::move(lane)), send_(std::move(send)), received_(std::move(received)) {}

  bool isCompleted() override {
    const std::lock_guard lock(lane_->mutex);
    return received_ ? received_->query() : send_->done && send_->done->query();
  }
  bool isSuccess() const override { return true; }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds) override {
    std::unique_lock lock(lane_->mutex);
    if (!received_) lane_->wait(lock, [this] { return send_->done.has_value(); });
    const c10::Event& done = received_ ? *received_ : *send_->done;
    done.block(current_stream(done.device()));
    return true;
  }

 private:
  const std::shared_ptr<Lane> lane_;
  const std::shared_ptr<Lane::Send> send_;
  const std::optional<c10::Event> received_;
};

class StreamGroup final : public c10d::Backend {
 public:
  StreamGroup(std::shared_ptr<Lane> lane, ProcessRank own) : Backend(own.rank, own.size), lane_(std::move(lane)) {}

  const std::string getBackendName() const override { return "streams"; }

  c10::intrusive_ptr<c10d::Work> send(std::vector<torch::Tensor>& tensors, int, int) override {
    const c10::Stream own = behind_the_current_stream(tensors);
    auto send = std::make_shared<Lane::Send>(Lane::Send{tensors.front(), own});
    {
      const std::lock_guard lock(lane_->mutex);
      lane_->waiting.push_back(send);
    }
    lane_->changed.notify_all();
    return c10::make_intrusive<Transfer>(lane_, send, std::nullopt);
  }

  c10::intrusive_ptr<c10d::Work> recv(std::vector<torch::Tensor>& tensors, int, int) override {
    const c10::Stream own = behind_the_current_stream(tensors);
    std::unique_lock lock(lane_->mutex);
    lane_->wait(lock, [this] { return !lane_->waiting.empty(); });
    const std::shared_ptr<Lane::Send> send = std::exchange(lane_->waiting.front(), nullptr);
    lane_->waiting.pop_front();
    if (send->tensor.nbytes() != tensors.front().nbytes()) throw std::runtime_error("a receive of another length");
    // Of two streams on one device the last one is the current one.
    event_on(send->stream).block(own);
    {
      const c10::MultiStreamGuard guard({send->stream, own});
      tensors.front().copy_(send->tensor);
    }
    event_on(own).block(send->stream);
    send->done = event_on(send->stream);
    send->tensor.reset();
    c10::Event received = event_on(own);
    lane_->changed.notify_all();
    return c10::make_intrusive<Transfer>(lane_, send, std::move(received));
  }

  void abort() override {
    {
      const std::lock_guard lock(lane_->mutex);
      lane_->is_aborted = true;
    }
    lane_->changed.notify_all();
  }

 private:
  c10::Stream behind_the_current_stream(const std::vector<torch::Tensor>& tensors) {
    const c10::Device device = tensors.front().device();
    const c10::Stream& own = streams_.of(device);
    event_on(current_stream(device)).block(own);
    return own;
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
