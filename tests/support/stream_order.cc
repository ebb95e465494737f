#include "tests/support/stream_order.h"

#include <algorithm>
#include <utility>

namespace penstock::test {
namespace {

/// Adds what `other` knows to `clock`.
void join(StreamClock& clock, const StreamClock& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

std::string name_of(StreamNumber stream) {
  return "stream " + std::to_string(stream.stream) + " of device " + std::to_string(stream.device);
}

}  // namespace

StreamClock& StreamOrder::host() {
  thread_local StreamClock clock{};
  return clock;
}

void StreamOrder::allocated(const void* block, StreamNumber owner) {
  if (!block) return;
  const std::lock_guard lock(mutex_);
  blocks_[block] = Block{owner, {}, {}, {}};
}

void StreamOrder::freed(const void* block) {
  if (!block) return;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return;
  const Block& freed = found->second;
  // The memory is used again behind the present work of its owner and of the recorded streams.
  StreamClock known = clocks_[freed.owner.index()];
  join(known, host());
  for (std::size_t stream = 0; stream < freed.recorded.size(); ++stream)
    if (freed.recorded[stream]) join(known, clocks_[stream]);
  const auto check = [&](const Operation& use) {
    if (use.number == 0 || contains(known, use)) return;
    violations_.push_back("memory of " + name_of(freed.owner) + " is freed while " + use.name + " on " +
                          name_of(use.stream) + " may still use it: that stream was not recorded");
  };
  check(freed.write);
  for (const auto& [stream, read] : freed.reads) check(read);
  blocks_.erase(found);
}

void StreamOrder::use_recorded(const void* block, StreamNumber stream) {
  const std::lock_guard lock(mutex_);
  if (const auto found = blocks_.find(block); found != blocks_.end()) found->second.recorded.set(stream.index());
}

void StreamOrder::fail(const std::string& text) {
  violations_.push_back(text);
  throw OrderViolation(text);
}

void StreamOrder::require_order(const Operation& now, const Operation& before, const char* what) {
  if (before.number == 0 || contains(clocks_[now.stream.index()], before)) return;
  fail(std::string(now.name) + " on " + name_of(now.stream) + " " + what + " " + before.name + " on " +
       name_of(before.stream) + ", and is not ordered after it");
}

StreamOrder::Operation StreamOrder::launch(const char* operation, StreamNumber stream,
                                           const std::vector<Access>& accesses) {
  const std::lock_guard lock(mutex_);
  StreamClock& clock = clocks_[stream.index()];
  join(clock, host());
  const Operation now{operation, stream, ++clock[stream.index()]};
  ++launches_[operation];
  for (const Access& access : accesses) {
    if (access.device != stream.device)
      fail(std::string(operation) + " on " + name_of(stream) + " uses memory of device " +
           std::to_string(access.device) + ", which is not the current one");
    const auto found = blocks_.find(access.block);
    if (found == blocks_.end()) continue;
    Block& block = found->second;
    require_order(now, block.write, access.writes ? "overwrites the result of" : "reads the result of");
    if (!access.writes) continue;
    for (const auto& [other, read] : block.reads) require_order(now, read, "overwrites what is read by");
  }
  for (const Access& access : accesses) {
    const auto found = blocks_.find(access.block);
    if (found == blocks_.end()) continue;
    if (access.writes) {
      found->second.write = now;
      found->second.reads.clear();
    } else {
      found->second.reads[stream.index()] = now;
    }
  }
  return now;
}

void StreamOrder::wrote(const Operation& operation, const void* block) {
  const std::lock_guard lock(mutex_);
  if (const auto found = blocks_.find(block); found != blocks_.end()) found->second.write = operation;
}

StreamClock StreamOrder::record(StreamNumber stream) {
  const std::lock_guard lock(mutex_);
  join(clocks_[stream.index()], host());
  return clocks_[stream.index()];
}

void StreamOrder::wait(StreamNumber stream, const StreamClock& event) {
  const std::lock_guard lock(mutex_);
  join(clocks_[stream.index()], event);
}

void StreamOrder::synchronize(const char* operation, const StreamClock& event) {
  const std::lock_guard lock(mutex_);
  join(host(), event);
  ++synchronizations_[operation];
}

void StreamOrder::query(const StreamClock& event) { join(host(), event); }

std::vector<std::string> StreamOrder::take_violations() {
  const std::lock_guard lock(mutex_);
  return std::exchange(violations_, {});
}

std::map<std::string, int> StreamOrder::synchronizations() const {
  const std::lock_guard lock(mutex_);
  return synchronizations_;
}

int StreamOrder::launches(const std::string& operation) const {
  const std::lock_guard lock(mutex_);
  const auto found = launches_.find(operation);
  return found == launches_.end() ? 0 : found->second;
}

void StreamOrder::forget_synchronizations() {
  const std::lock_guard lock(mutex_);
  synchronizations_.clear();
}

}  // namespace penstock::test
