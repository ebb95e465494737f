// A network of two processes, of which the other one is silent.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/transport/processes/buffer_network.h"

namespace penstock::test {

/// The network of rank 0 of two, whose sends go nowhere, and to which nothing comes but what the test gives it.
class SilentNetwork final : public processes::BufferNetwork {
 public:
  /// `early` arrive while the network is being made known to its user.
  explicit SilentNetwork(std::vector<Arrival> early = {}) : early_(std::move(early)) {}

  std::string name() const override { return "silent"; }
  WorldRank rank() const override { return WorldRank(0); }
  const std::vector<processes::ProcessPlace>& places() const override { return places_; }
  std::mutex& calls() override { return calls_; }
  bool must_be_polled() const override { return false; }
  void notify(std::function<void()> has_news) override { std::thread(has_news).join(); }
  void watch_exit(std::function<void()>) override {}
  void begin_send(WorldRank, int kind, processes::WireBuffer) override {
    const std::lock_guard lock(mutex_);
    kinds_.push_back(kind);
    changed_.notify_all();
  }
  bool advance(std::vector<Arrival>& arrived) override {
    arrived = std::exchange(early_, {});
    return !arrived.empty();
  }
  std::vector<Transfer> transfers() const override { return {}; }
  std::optional<Break> take_break() override { return std::nullopt; }
  void begin_barrier() override {}
  bool is_barrier_done() override { return true; }
  void close() override {}
  void abandon() noexcept override {}

  /// The kinds of the first `count` buffers, once they are sent.
  std::vector<int> first_kinds(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return kinds_.size() >= count; });
    return {kinds_.begin(), kinds_.begin() + static_cast<std::ptrdiff_t>(count)};
  }

 private:
  // On two hosts: no process is looked after.
  const std::vector<processes::ProcessPlace> places_{{.host = 1}, {.host = 2}};
  std::mutex calls_, mutex_;
  std::condition_variable changed_;
  std::vector<int> kinds_;      // guarded by mutex_
  std::vector<Arrival> early_;  // guarded by calls_
};

}  // namespace penstock::test
