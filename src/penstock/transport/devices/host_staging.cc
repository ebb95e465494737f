#include "penstock/transport/devices/host_staging.h"

#include <algorithm>
#include <utility>

#include <c10/core/StreamGuard.h>

#include "penstock/base/device_copy.h"
#include "penstock/base/error.h"
#include "penstock/base/process.h"

namespace penstock::devices {
namespace {

bool is_on_device(const torch::Tensor& tensor) { return tensor.defined() && !tensor.is_cpu(); }

}  // namespace

HostStaging::~HostStaging() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool HostStaging::is_needed(const Message& message) {
  return std::ranges::any_of(message.payloads, is_on_device, &Payload::tensor);
}

void HostStaging::stage(SendRequest request) {
  {
    const std::lock_guard lock(mutex_);
    copies_.push_back(begin(std::move(request)));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  changed_.notify_one();
}

void HostStaging::order_current_streams() {
  const std::lock_guard lock(mutex_);
  for (const c10::Event& event : complete_) event.block(transport::current_stream(event.device()));
  complete_.clear();
}

HostStaging::Copy HostStaging::begin(SendRequest request) {
  Copy copy{std::move(request), {}};
  std::vector<torch::Tensor> sources;
  for (const Payload& payload : copy.request.message.payloads)
    if (is_on_device(payload.tensor)) sources.push_back(payload.tensor);
  const auto ready = transport::DeviceEvents::of(sources);
  for (Payload& payload : copy.request.message.payloads) {
    if (!is_on_device(payload.tensor)) continue;
    const c10::Stream& link = link_streams_.of(payload.tensor.device());
    ready->block(link, link.device());
    const c10::StreamGuard guard(link);
    transport::record_use(payload.tensor, link);
    payload.tensor = to_host_later(payload.tensor);
  }
  for (const torch::Tensor& source : sources) {
    if (std::ranges::count(copy.done, source.device(), &c10::Event::device) > 0) continue;
    copy.done.emplace_back(source.device().type());
    copy.done.back().record(link_streams_.of(source.device()));
  }
  return copy;
}

void HostStaging::run() {
  name_this_thread(say("staging ", rank_.value()));
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [this] { return is_closing_ || !copies_.empty(); });
    if (copies_.empty()) return;
    Copy copy = std::move(copies_.front());
    copies_.pop_front();
    lock.unlock();
    try {
      finish(std::move(copy));
    } catch (const std::exception& error) {
      calls_.fail(say("rank ", rank_.value(), " could not copy a message from its device: ", error.what()));
    }
    lock.lock();
  }
}

void HostStaging::finish(Copy copy) {
  for (const c10::Event& done : copy.done) done.synchronize();
  {
    const std::lock_guard lock(mutex_);
    for (c10::Event& done : copy.done) {
      std::erase_if(complete_, [&](const c10::Event& older) { return older.device() == done.device(); });
      complete_.push_back(std::move(done));
    }
  }
  calls_.go_on(std::move(copy.request));
}

}  // namespace penstock::devices
