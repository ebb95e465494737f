#include "penstock/transport/devices/device_channels.h"

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "penstock/base/error.h"
#include "penstock/base/process.h"
#include "penstock/transport/c10d.h"
#include "penstock/transport/device_hand_over.h"
#include "penstock/transport/records.h"

namespace penstock::devices {
namespace {

struct Announcement {
  static constexpr std::string_view record_name = "Announcement";

  Tag tag;  // of the message
};

/// Announcement number `number` of a pair. All pipelines of the world share this order.
Tag announcement_tag(std::uint64_t number) { return control_tag(pipeline_of_world, Topic::announcement, number); }

/// The memory of a dense tensor, in its order there; libraries do not know every type.
std::vector<torch::Tensor> bytes_of(const torch::Tensor& tensor) {
  return {tensor.as_strided({tensor.numel()}, {1}).view(torch::kUInt8)};
}

class GroupDeviceChannels final : public DeviceChannels {
 public:
  GroupDeviceChannels(WorldRank rank, DeviceGroups groups, c10::intrusive_ptr<c10d::Store> store)
      : rank_(rank), groups_(std::move(groups)), store_(std::move(store)) {}
  ~GroupDeviceChannels() override;

  std::string name() const override { return groups_.name; }
  c10::DeviceType device_type() const override { return groups_.device_type; }
  bool needs_own_devices() const override { return groups_.needs_own_devices; }
  void connect(const RankPair& pair, std::uint32_t pipeline) override;
  bool carries(const RankPair& pair, const Tag& tag) const override {
    return carries_tensors_of_stages(tag.traffic) && carried_.contains({tag.pipeline, pair});
  }
  SendRequest send(SendRequest request) override;
  Message receive(WorldRank from, const Tag& tag, const TakeAnnouncement& take) override;
  void abort() noexcept override;

 private:
  using Group = c10::intrusive_ptr<c10d::Backend>;
  static constexpr int sender = 0, receiver = 1;  // the ranks in a group

  /// A message whose receives are queued.
  struct Arriving {
    Message message;
    std::shared_ptr<const transport::DeviceEvents> complete;
  };
  struct Incoming {
    std::uint64_t announced = 0;  // the number of the next announcement
    std::map<Tag, Arriving> messages = {};
    transport::LinkStreams link_streams = {};
  };
  struct Sent {
    StepKey step;
    c10::Stream stream;  // that computed the tensor, and the memory of which it is
    c10::intrusive_ptr<c10d::Work> work;
    torch::Tensor tensor;  // its memory is used until the work is complete
  };

  c10::Device current_device() const { return c10::impl::VirtualGuardImpl(groups_.device_type).getDevice(); }
  /// Null if there is none yet. Throws TransportError after an abort, as add() does.
  Group group_of(const RankPair& pair) const;
  void add(const RankPair& pair, Group group);
  void require_no_abort() const {
    require<TransportError>(!is_aborted_, "the device channels of rank ", rank_.value(), " have ended");
  }
  void greet(c10d::Backend& group, bool sends) const;
  bool travels(const torch::Tensor& tensor) const {
    return tensor.defined() && tensor.device().type() == groups_.device_type;
  }
  void queue_receives(WorldRank from, Message announcement);
  void order_behind_sends(const StepKey& step);

  const WorldRank rank_;
  const DeviceGroups groups_;
  const c10::intrusive_ptr<c10d::Store> store_;
  mutable std::mutex mutex_;
  std::map<RankPair, Group> by_pair_;  // guarded by mutex_
  bool is_aborted_ = false;            // likewise
  std::vector<std::thread> aborting_;  // likewise
  std::set<std::pair<std::uint32_t, RankPair>> carried_;
  std::map<WorldRank, std::uint64_t> announced_;  // to each rank
  std::map<WorldRank, Incoming> incoming_;
  std::deque<Sent> sent_;
};

// The last messages have arrived, because all ranks have left, or never will. The host asks before it frees their
// memory.
GroupDeviceChannels::~GroupDeviceChannels() {
  for (std::thread& aborts : aborting_) aborts.join();
  for (const Sent& sent : sent_) sent.work->isCompleted();
}

void GroupDeviceChannels::connect(const RankPair& pair, std::uint32_t pipeline) {
  if (!group_of(pair)) {
    const bool sends = pair.from == rank_;
    const auto store = c10::make_intrusive<c10d::PrefixStore>(say(pair.from.value(), ">", pair.to.value()), store_);
    try {
      const Group group = groups_.make(store, {.rank = sends ? sender : receiver, .size = 2});
      add(pair, group);
      greet(*group, sends);
    } catch (const std::exception& error) {
      group_of(pair);  // throws where an abort has ended the greeting
      const std::string text = error.what();
      throw ConfigError(say("ranks ", pair.from.value(), " and ", pair.to.value(), " cannot be connected by ", name(),
                            ": ", transport::c10d_reason(text.substr(0, text.find('\n'))),
                            ": give each rank a device of its own, or use --transport gloo"));
    }
  }
  carried_.insert({pipeline, pair});
}

/// The library connects with the first transfer, which says what is wrong with the devices.
void GroupDeviceChannels::greet(c10d::Backend& group, bool sends) const {
  std::vector<torch::Tensor> greeting{torch::zeros({1}, torch::TensorOptions(torch::kUInt8).device(current_device()))};
  (sends ? group.send(greeting, receiver, 0) : group.recv(greeting, sender, 0))->wait();
  transport::current_stream(current_device()).synchronize();
}

void GroupDeviceChannels::add(const RankPair& pair, Group group) {
  const std::lock_guard lock(mutex_);
  require_no_abort();
  by_pair_[pair] = std::move(group);
}

GroupDeviceChannels::Group GroupDeviceChannels::group_of(const RankPair& pair) const {
  const std::lock_guard lock(mutex_);
  require_no_abort();
  const auto known = by_pair_.find(pair);
  return known == by_pair_.end() ? Group() : known->second;
}

SendRequest GroupDeviceChannels::send(SendRequest request) {
  const StepKey step = step_of(request.tag).value();
  order_behind_sends(step);
  const Group group = group_of({rank_, request.to});
  Message announcement = transport::message_of(Announcement{request.tag});
  for (Payload& payload : request.message.payloads) {
    torch::Tensor& tensor = payload.tensor;
    if (travels(tensor)) {
      if (tensor.numel() > 0) {
        std::vector<torch::Tensor> bytes = bytes_of(tensor);
        sent_.push_back({step, transport::current_stream(tensor.device()), group->send(bytes, receiver, 0), tensor});
      }
      tensor = transport::empty_on(torch::kMeta, tensor);
    }
    announcement.payloads.push_back(std::move(payload));
  }
  return {request.to, announcement_tag(announced_[request.to]++), std::move(announcement)};
}

Message GroupDeviceChannels::receive(WorldRank from, const Tag& tag, const TakeAnnouncement& take) {
  Incoming& incoming = incoming_[from];
  while (!incoming.messages.contains(tag)) queue_receives(from, take(announcement_tag(incoming.announced++)));
  Arriving arriving = std::move(incoming.messages.extract(tag).mapped());
  if (arriving.complete) arriving.complete->block_current_streams();
  for (const Payload& payload : arriving.message.payloads)
    if (travels(payload.tensor))
      transport::record_use(payload.tensor, transport::current_stream(payload.tensor.device()));
  order_behind_sends(step_of(tag).value());
  return std::move(arriving.message);
}

// On the link stream, so that what the rank computes meanwhile is not ordered with the transfer.
void GroupDeviceChannels::queue_receives(WorldRank from, Message announcement) {
  const Group group = group_of({from, rank_});
  Incoming& incoming = incoming_[from];
  const Tag tag = transport::record_in<Announcement>(announcement).tag;
  announcement.payloads.erase(announcement.payloads.begin());
  const c10::Device device = current_device();
  const c10::StreamGuard guard(incoming.link_streams.of(device));
  std::vector<torch::Tensor> received;
  for (Payload& payload : announcement.payloads) {
    torch::Tensor& tensor = payload.tensor;
    if (!tensor.defined() || !tensor.is_meta()) continue;
    tensor = transport::empty_on(device, tensor);
    if (tensor.numel() == 0) continue;
    std::vector<torch::Tensor> bytes = bytes_of(tensor);
    group->recv(bytes, sender, 0)->wait();  // the link stream does
    received.push_back(tensor);
  }
  auto complete = transport::DeviceEvents::of(received);
  incoming.messages.emplace(tag, Arriving{std::move(announcement), std::move(complete)});
}

// What a rank sends does not change within its step. Behind it, the rank's stream waits for what is still on its way,
// which the other rank receives whatever this one does next. Memory is given back once it has arrived.
void GroupDeviceChannels::order_behind_sends(const StepKey& step) {
  {
    const std::lock_guard lock(mutex_);
    require_no_abort();  // while a group is being aborted, its transfers answer nothing
  }
  std::erase_if(sent_, [&](const Sent& sent) {
    if (sent.step == step && !sent.work->isCompleted()) return false;
    const c10::StreamGuard guard(sent.stream);
    sent.work->wait();  // the stream does
    return true;
  });
}

// Each group by a thread of its own: an abort may wait for the device, which waits for transfers of the other groups.
void GroupDeviceChannels::abort() noexcept {
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  for (const auto& [pair, group] : by_pair_) {
    try {
      aborting_.emplace_back([this, group = group] {
        name_this_thread(say("abort ", rank_.value()));
        try {
          group->abort();
        } catch (const std::exception&) {  // the world has failed already
        }
      });
    } catch (const std::system_error&) {  // no thread: those of the other groups go on
    }
  }
}

}  // namespace

std::unique_ptr<DeviceChannels> open_device_channels(WorldRank rank, const DeviceGroups& groups,
                                                     const c10::intrusive_ptr<c10d::Store>& store) {
  return std::make_unique<GroupDeviceChannels>(rank, groups, store);
}

}  // namespace penstock::devices
