// The endpoint of a rank that is a process, over any network between processes.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/core/Event.h>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/transport/device_hand_over.h"
#include "penstock/transport/devices/device_channels.h"
#include "penstock/transport/devices/host_staging.h"
#include "penstock/transport/mailbox.h"
#include "penstock/transport/processes/peer_processes.h"
#include "penstock/transport/processes/progress_thread.h"
#include "penstock/transport/processes/wire.h"
#include "penstock/transport/records.h"

namespace penstock::processes {
namespace {

/// What the two ends of a device channel tell each other before they connect.
struct ChannelEnd {
  static constexpr std::string_view record_name = "ChannelEnd";
  std::uint64_t device = 0;  // physical_device()
};

class ProcessEndpoint final : public Transport {
 public:
  ProcessEndpoint(std::unique_ptr<BufferNetwork> network, const TransportOptions& options,
                  std::unique_ptr<devices::DeviceChannels> device_channels)
      : device_channels_(std::move(device_channels)),
        progress_thread_(std::move(network), {.deadline = options.deadline, .stall_limit = options.stall_limit},
                         [channels = device_channels_.get()] {
                           if (channels) channels->abort();
                         }) {}

  WorldRank rank() const override { return progress_thread_.rank(); }
  int size() const override { return progress_thread_.size(); }
  std::string name() const override { return device_channels_ ? device_channels_->name() : progress_thread_.name(); }
  bool shares_host(WorldRank other) const override { return progress_thread_.shares_host(other); }

  void send(WorldRank to, const Tag& tag, Message message) override {
    require_can_send(to);
    SendRequest request{to, tag, prepare_for_send(std::move(message))};
    if (travels_in_channel({rank(), to}, tag))
      send_from_host(device_channels_->send(std::move(request)));
    else if (stays_on_device(to, tag))
      send_from_host({to, tag, transport::with_events(std::move(request.message))});
    else if (devices::HostStaging::is_needed(request.message))
      stage(std::move(request));
    else
      send_from_host(std::move(request));
    progress_thread_.progress().move();
  }

  Message receive(WorldRank from, const Tag& tag, const std::string& waiting_for) override {
    require_rank(from);
    const auto take = [&](const Tag& host_tag) {
      return progress_thread_.mailbox().take(from, host_tag, waiting_for, progress_thread_);
    };
    Message message = travels_in_channel({from, rank()}, tag) ? device_channels_->receive(from, tag, take) : take(tag);
    if (tag.traffic != Traffic::background) staging_.order_current_streams();
    progress_thread_.progress().move();
    return stays_on_device(from, tag) ? device_receiver_.receive(std::move(message)) : message;
  }

  bool has_arrived(WorldRank from, const Tag& tag) override {
    return !travels_in_channel({from, rank()}, tag) && progress_thread_.mailbox().contains(from, tag);
  }

  void connect(const PipelineChannels& wanted) override {
    if (wanted.boundary_shape) progress_thread_.shapes().declare(wanted.pipeline, *wanted.boundary_shape);
    if (!device_channels_) return;
    require<ConfigError>(wanted.device.type() == device_channels_->device_type(), "the transport ", name(),
                         " carries tensors of devices of type ",
                         c10::DeviceTypeName(device_channels_->device_type(), true), ", but rank ", rank().value(),
                         " is on ", wanted.device.str(), ": give it such a device, or use --transport gloo");
    for (const RankPair& pair : wanted.pairs)
      if ((pair.from == rank()) != (pair.to == rank())) connect(pair, wanted);
  }
  void await_stream(const c10::Stream& stream, const std::string& what) override {
    if (!device_channels_) return;
    c10::Event done(stream.device_type());
    done.record(stream);
    // All other ranks, because this rank's device may wait for theirs through the devices of others.
    std::vector<transport::AwaitedRank> others;
    for (WorldRank other(0); other.value() < size(); other = other.next())
      if (other != rank()) others.push_back({other, /*has_to_send=*/false});
    progress_thread_.wait_until([&] { return done.query(); }, others, say(what, " on its device, after messages"));
  }
  MessageCosts message_costs() const override { return progress_thread_.message_costs(); }

  void report_progress(const Position& position) override { progress_thread_.progress().report(position); }
  transport::PeerStatus status() const override { return progress_thread_.progress().read(); }
  void abort(const std::string& reason) noexcept override { progress_thread_.abort(reason); }
  void cancel(const StepKey& step, const std::string& reason) noexcept override {
    if (device_channels_ && step.kind != WorkKind::background) return abort(reason);
    progress_thread_.cancel(step, reason);
  }
  bool can_cancel() const override { return !device_channels_; }
  std::optional<std::string> aborted() const override { return progress_thread_.mailbox().aborted(); }
  bool is_lost(WorldRank rank) const override { return progress_thread_.is_lost(rank); }

 private:
  bool travels_in_channel(const RankPair& pair, const Tag& tag) const {
    return device_channels_ && device_channels_->carries(pair, tag);
  }

  /// The host would wait for its device if a rank's messages to itself passed through it.
  bool stays_on_device(WorldRank other, const Tag& tag) const {
    return device_channels_ && other == rank() && carries_tensors_of_stages(tag.traffic);
  }

  void connect(const RankPair& pair, const PipelineChannels& wanted) {
    const WorldRank other = pair.from == rank() ? pair.to : pair.from;
    // The library waits for the other process without a deadline, so both come here first.
    const Tag tag = in_phase(control_tag(wanted.pipeline, Topic::connection), 0, pair.from.value());
    const ChannelEnd own{
        physical_device({c10::DeviceTypeName(wanted.device.type()), std::max<int>(wanted.device.index(), 0)})};
    send(other, tag, transport::message_of(own));
    const auto its = transport::record_in<ChannelEnd>(receive(other, tag, "the connection of the device channels"));
    require<ConfigError>(!device_channels_->needs_own_devices() || own.device != its.device, "rank ", rank().value(),
                         " and rank ", other.value(), " have the same device, ", wanted.device.str(), ", and ", name(),
                         " needs one for each rank: give each rank its own, or use --transport gloo");
    device_channels_->connect(pair, wanted.pipeline);
  }

  // A thread that copies to the host waits for the device, and nothing watches it. So the rank waits first if its
  // device
  // may wait for another rank.
  void stage(SendRequest request) {
    if (device_channels_ && request.tag.traffic != Traffic::background)
      for (const Payload& payload : request.message.payloads)
        if (payload.tensor.defined() && !payload.tensor.is_cpu())
          await_stream(transport::current_stream(payload.tensor.device()), "what it sends through its host");
    staging_.stage(std::move(request));
  }

  void send_from_host(SendRequest request) {
    auto& [to, tag, message] = request;
    message.sent_ns = now_ns();
    if (to != rank()) return progress_thread_.send(to, tag, std::move(message));
    message.arrived_ns = message.sent_ns;
    progress_thread_.mailbox().put(to, tag, std::move(message));
  }

  const std::unique_ptr<devices::DeviceChannels> device_channels_;  // null: there is none
  ProgressThread progress_thread_;
  transport::DeviceReceiver device_receiver_;  // of this rank's messages to itself
  devices::HostStaging staging_{
      rank(),
      {.go_on = [this](SendRequest request) { send_from_host(std::move(request)); },
       .fail = [this](const std::string& reason) { abort(reason); }}};  // last: it uses the others
};

}  // namespace

void require_deadlines(const TransportOptions& options) {
  require<ConfigError>(options.deadline.count() > 0 && options.start_deadline.count() > 0,
                       "the deadlines of the transport are ", options.deadline.count(), " ms and ",
                       options.start_deadline.count(), " ms: they must be longer than zero");
}

std::unique_ptr<Transport> open_process(std::unique_ptr<BufferNetwork> network, const TransportOptions& options,
                                        std::unique_ptr<devices::DeviceChannels> device_channels) {
  return std::make_unique<ProcessEndpoint>(std::move(network), options, std::move(device_channels));
}

}  // namespace penstock::processes
