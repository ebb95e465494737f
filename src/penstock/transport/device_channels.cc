#include "penstock/transport/device_channels.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>
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
#include "penstock/base/thread_name.h"
#include "penstock/transport/device_hand_over.h"
#include "penstock/transport/gloo_connections.h"
#include "penstock/transport/records.h"
#include "penstock/transport/static_steps.h"

namespace penstock {
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
    return tag.traffic < Traffic::result && carried_.contains({tag.pipeline, pair});
  }
  void send(SendRequest request, const HostMessages& host) override;
  Message receive(WorldRank from, const Tag& tag, const std::string& waiting_for, const HostMessages& host) override;
  void begin_step(const StepKey& step, const std::shared_ptr<const StepForm>& form) override;
  void confirm_step(const HostMessages& host) override { static_steps_.confirm(host); }
  void begin_capture() override;
  void end_capture() override;
  void abandon_capture() override;
  void repeat_capture() override;
  void end_step(std::uint32_t pipeline, const HostMessages& host) override;
  std::vector<WorldRank> unconfirmed_senders() const override { return static_steps_.unconfirmed_senders(); }
  std::uint64_t allocations() const override { return allocations_; }
  void abort() noexcept override;

 private:
  using Group = c10::intrusive_ptr<c10d::Backend>;
  static constexpr int sender = 0, receiver = 1;  // the ranks in a group

  /// A message whose receives are queued.
  struct Arriving {
    Message message;
    std::vector<c10::intrusive_ptr<c10d::Work>> receives = {};
  };
  struct Incoming {
    std::uint64_t announced = 0;  // the number of the next announcement
    std::map<Tag, Arriving> messages = {};
    std::map<Tag, std::vector<Payload>> reserved = {};  // memory for messages of a static step
    LinkStreams link_streams = {};
  };
  struct Sent {
    StepKey step;
    c10::Stream stream;  // that computed the tensor, and the memory of which it is
    c10::intrusive_ptr<c10d::Work> work;
    torch::Tensor tensor;  // its memory is used until the work is complete
  };

  c10::Device current_device() const { return c10::impl::VirtualGuardImpl(groups_.device_type).getDevice(); }
  /// Null where there is none yet. Throws TransportError after an abort, as add() does.
  Group group_of(const RankPair& pair) const;
  void add(const RankPair& pair, Group group);
  void require_no_abort() const {
    require<TransportError>(!is_aborted_, "the device channels of rank ", rank_.value(), " have ended");
  }
  /// The same, without the mutex.
  void require_no_abort_since() const {
    const std::lock_guard lock(mutex_);
    require_no_abort();
  }
  void greet(c10d::Backend& group, bool sends) const;
  bool travels(const torch::Tensor& tensor) const {
    return tensor.defined() && tensor.device().type() == groups_.device_type;
  }
  /// Throws ConfigError in a capture unless `is_known`: the message with `tag` is on devices and not announced.
  void require_captured(bool is_known, const Tag& tag) const;
  void queue_sends(const SendRequest& request);
  void order_behind_sends(const StepKey& step);
  void queue_announced(WorldRank from, const std::string& waiting_for, const HostMessages& host);
  /// The next message of a static step.
  void queue_known(WorldRank from, const std::string& waiting_for, const HostMessages& host);
  std::pair<Tag, Message> take_announcement(WorldRank from, const std::string& waiting_for, const HostMessages& host);
  void reserve(WorldRank from);
  /// Replaces tensors on the device "meta".
  void give_memory(Incoming& incoming, const Tag& tag, std::vector<Payload>& payloads);
  void queue_receives(WorldRank from, const Tag& tag, Message message);
  void order_behind_receives(const Arriving& arriving, const c10::Stream& link);

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
  StaticSteps static_steps_{rank_};
  bool is_capturing_ = false;
  std::size_t sent_before_capture_ = 0;
  std::atomic<std::uint64_t> allocations_{0};
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
                            ": ", gloo_reason(text.substr(0, text.find('\n'))),
                            ": give each rank a device of its own, or use --transport gloo"));
    }
  }
  carried_.insert({pipeline, pair});
}

/// The library connects with the first transfer, which says what is wrong with the devices.
void GroupDeviceChannels::greet(c10d::Backend& group, bool sends) const {
  std::vector<torch::Tensor> greeting{torch::zeros({1}, torch::TensorOptions(torch::kUInt8).device(current_device()))};
  (sends ? group.send(greeting, receiver, 0) : group.recv(greeting, sender, 0))->wait();
  current_stream(current_device()).synchronize();
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

void GroupDeviceChannels::send(SendRequest request, const HostMessages& host) {
  auto& [to, tag, message] = request;
  order_behind_sends({tag.pipeline, tag.step});
  std::vector<Payload> outline = message.payloads;
  for (Payload& payload : outline)
    if (travels(payload.tensor)) payload.tensor = empty_on(torch::kMeta, payload.tensor);
  const bool is_announced = static_steps_.announces(to, tag, outline);
  require_captured(!is_announced, tag);
  queue_sends(request);
  if (!is_announced) return;
  Message announcement = message_of(Announcement{tag});
  std::move(outline.begin(), outline.end(), std::back_inserter(announcement.payloads));
  host.send({to, announcement_tag(announced_[to]++), std::move(announcement)});
}

void GroupDeviceChannels::queue_sends(const SendRequest& request) {
  const Group group = group_of({rank_, request.to});
  const StepKey step{request.tag.pipeline, request.tag.step};
  for (const Payload& payload : request.message.payloads) {
    const torch::Tensor& tensor = payload.tensor;
    if (!travels(tensor) || tensor.numel() == 0) continue;
    std::vector<torch::Tensor> bytes = bytes_of(tensor);
    sent_.push_back({step, current_stream(tensor.device()), group->send(bytes, receiver, 0), tensor});
  }
}

Message GroupDeviceChannels::receive(WorldRank from, const Tag& tag, const std::string& waiting_for,
                                     const HostMessages& host) {
  Incoming& incoming = incoming_[from];
  const bool is_known = static_steps_.are_known(from, tag);
  require_captured(is_known, tag);
  while (!incoming.messages.contains(tag)) {
    if (is_known)
      queue_known(from, waiting_for, host);
    else
      queue_announced(from, waiting_for, host);
  }
  Arriving arriving = std::move(incoming.messages.extract(tag).mapped());
  if (is_known) {
    static_steps_.count_taken(from);
    reserve(from);
  }
  if (!arriving.receives.empty()) order_behind_receives(arriving, incoming.link_streams.of(current_device()));
  order_behind_sends({tag.pipeline, tag.step});
  return std::move(arriving.message);
}

void GroupDeviceChannels::queue_announced(WorldRank from, const std::string& waiting_for, const HostMessages& host) {
  auto [tag, message] = take_announcement(from, waiting_for, host);
  static_steps_.remember(from, tag, message.payloads);
  give_memory(incoming_[from], tag, message.payloads);
  queue_receives(from, tag, std::move(message));
}

void GroupDeviceChannels::queue_known(WorldRank from, const std::string& waiting_for, const HostMessages& host) {
  MessageOutline outline = static_steps_.next(from);
  Incoming& incoming = incoming_[from];
  if (auto reserved = incoming.reserved.extract(outline.tag))
    return queue_receives(from, outline.tag, {std::move(reserved.mapped())});
  Message message{std::move(outline.payloads)};
  if (!outline.is_on_devices) {
    require_captured(false, outline.tag);
    auto [tag, announced] = take_announcement(from, waiting_for, host);
    require<InternalError>(tag == outline.tag, "rank ", from.value(), " has announced another message than in the ",
                           "first step");
    message = std::move(announced);
  }
  give_memory(incoming, outline.tag, message.payloads);
  queue_receives(from, outline.tag, std::move(message));
}

std::pair<Tag, Message> GroupDeviceChannels::take_announcement(WorldRank from, const std::string& waiting_for,
                                                               const HostMessages& host) {
  Message announcement = host.receive(from, announcement_tag(incoming_[from].announced++), waiting_for);
  const Tag tag = record_in<Announcement>(announcement).tag;
  announcement.payloads.erase(announcement.payloads.begin());
  return {tag, std::move(announcement)};
}

// Before the messages are taken, so that a buffer is received into behind what reads it now, and not behind what the
// rank computes until then. Only the memory: a receive that is queued before its send, on a device where nothing else
// is left to run, would end no wait of the host for this device.
void GroupDeviceChannels::reserve(WorldRank from) {
  Incoming& incoming = incoming_[from];
  while (auto outline = static_steps_.next_to_reserve(from)) {
    if (!outline->is_on_devices) continue;
    give_memory(incoming, outline->tag, outline->payloads);
    incoming.reserved.emplace(outline->tag, std::move(outline->payloads));
  }
}

// On the link stream, so that what the rank computes meanwhile is not ordered with the transfer.
void GroupDeviceChannels::give_memory(Incoming& incoming, const Tag& tag, std::vector<Payload>& payloads) {
  const c10::Device device = current_device();
  const c10::Stream reader = current_stream(device);
  const c10::StreamGuard guard(incoming.link_streams.of(device));
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    torch::Tensor& tensor = payloads[i].tensor;
    if (!tensor.defined() || !tensor.is_meta()) continue;
    auto given = static_steps_.memory_of(tag, i, tensor, reader);
    if (!given) given = {empty_on(device, tensor), true};
    tensor = std::move(given->tensor);
    if (given->is_new) ++allocations_;
  }
}

void GroupDeviceChannels::queue_receives(WorldRank from, const Tag& tag, Message message) {
  const Group group = group_of({from, rank_});
  Incoming& incoming = incoming_[from];
  const c10::Stream& link = incoming.link_streams.of(current_device());
  // Branches of a graph need not run at the same time, so that a receive must not come before what its sender waits for.
  if (is_capturing_) event_on(current_stream(link.device())).block(link);
  const c10::StreamGuard guard(link);
  Arriving arriving{std::move(message)};
  for (const Payload& payload : arriving.message.payloads) {
    if (!travels(payload.tensor) || payload.tensor.numel() == 0) continue;
    std::vector<torch::Tensor> bytes = bytes_of(payload.tensor);
    arriving.receives.push_back(group->recv(bytes, sender, 0));
  }
  incoming.messages.emplace(tag, std::move(arriving));
}

void GroupDeviceChannels::order_behind_receives(const Arriving& arriving, const c10::Stream& link) {
  const c10::Stream user = current_stream(link.device());
  c10::Event arrived(link.device_type());
  {
    const c10::StreamGuard guard(link);
    for (const auto& receive : arriving.receives) receive->wait();  // the link stream does
    arrived.record(link);
  }
  arrived.block(user);
  for (const Payload& payload : arriving.message.payloads)
    if (travels(payload.tensor)) record_use(payload.tensor, user);
}

// What a rank sends does not change within its step. Behind it, the rank's stream waits for what is still on its way,
// which the other rank receives whatever this one does next. Memory is given back once it has arrived.
void GroupDeviceChannels::order_behind_sends(const StepKey& step) {
  if (is_capturing_) return;  // nothing is ever complete there; end_capture() orders all
  require_no_abort_since();   // while a group is being aborted, its transfers answer nothing
  std::erase_if(sent_, [&](const Sent& sent) {
    if (sent.step == step && !sent.work->isCompleted()) return false;
    const c10::StreamGuard guard(sent.stream);
    sent.work->wait();  // the stream does
    return true;
  });
}

void GroupDeviceChannels::begin_step(const StepKey& step, const std::shared_ptr<const StepForm>& form) {
  order_behind_sends(step);  // gives back the buffers of values that were passed on
  for (auto& [from, incoming] : incoming_) incoming.reserved.clear();
  static_steps_.begin(step, form);
  for (const WorldRank from : static_steps_.known_senders()) reserve(from);
}

void GroupDeviceChannels::require_captured(bool is_known, const Tag& tag) const {
  require<ConfigError>(!is_capturing_ || is_known, sending_position(tag).instruction,
                       " is announced, because it has a ",
                       "tensor on the CPU or is not the same on both ranks, and cannot be captured: leave out ",
                       "capture_steps (--capture-steps)");
}

// A stream is part of the capture from where it waits for one that is. What was reserved was ordered before.
void GroupDeviceChannels::begin_capture() {
  sent_before_capture_ = sent_.size();
  static_steps_.begin_capture();
  const c10::Device device = current_device();
  const c10::Event begun = event_on(current_stream(device));
  for (auto& [from, incoming] : incoming_) {
    incoming.reserved.clear();
    begun.block(incoming.link_streams.of(device));
  }
  is_capturing_ = true;
  for (const WorldRank from : static_steps_.known_senders()) reserve(from);
}

// All streams of a capture are joined at its end.
void GroupDeviceChannels::end_capture() {
  is_capturing_ = false;
  for (; sent_.size() > sent_before_capture_; sent_.pop_back()) {
    const c10::StreamGuard guard(sent_.back().stream);
    sent_.back().work->wait();
  }
  const c10::Device device = current_device();
  for (auto& [from, incoming] : incoming_) {
    event_on(incoming.link_streams.of(device)).block(current_stream(device));
    incoming.reserved.clear();
  }
  static_steps_.end_capture();
}

// Of transfers that were captured nothing may be asked.
void GroupDeviceChannels::abandon_capture() {
  is_capturing_ = false;
  while (sent_.size() > sent_before_capture_) sent_.pop_back();
  for (auto& [from, incoming] : incoming_) {
    incoming.messages.clear();
    incoming.reserved.clear();
  }
}

void GroupDeviceChannels::repeat_capture() {
  for (auto& [from, incoming] : incoming_) incoming.reserved.clear();
  static_steps_.repeat_capture();
}

void GroupDeviceChannels::end_step(std::uint32_t pipeline, const HostMessages& host) {
  std::set<WorldRank> peers;
  for (const auto& [of, pair] : carried_)
    if (of == pipeline) peers.insert(pair.from == rank_ ? pair.to : pair.from);
  static_steps_.end(host, peers);
}

// Each group by a thread of its own: NCCL waits until no graph has work of the group, and a graph that runs does not end
// before the groups of all its transfers are aborted.
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

}  // namespace penstock
