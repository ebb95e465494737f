// Makes items ahead of their use on threads of its own. Free of LibTorch, so that it can run under TSAN.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/base/process.h"

namespace penstock {

struct PrefetchOptions {
  std::size_t ahead = 0;    // largest number of items in stock; 0: no threads, next() makes the item
  std::size_t workers = 1;  // threads, at least 1
};

/// Calls `make` with 0, 1, ... until it returns std::nullopt, and returns the items in this order. With several
/// workers, `make` runs on several threads at once and may be called for a few indices beyond the end. An exception in
/// `make` ends the stream and is rethrown by the next() that would have returned that item, after all items before it.
/// Only one thread at a time may call next(). The destructor waits for the running calls of `make`.
template <class Item>
class Prefetcher {
 public:
  using Make = std::function<std::optional<Item>(std::int64_t index)>;

  Prefetcher(Make make, const PrefetchOptions& options) : make_(std::move(make)), ahead_(options.ahead) {
    for (std::size_t i = 0; ahead_ > 0 && i < std::max<std::size_t>(1, options.workers); ++i)
      workers_.emplace_back([this](std::stop_token stop) { run(stop); });
  }
  ~Prefetcher() {
    for (std::jthread& worker : workers_) worker.request_stop();  // all of them before the first is joined
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next item; std::nullopt after the end. Blocks until the item is made.
  std::optional<Item> next() {
    if (ahead_ == 0) return next_now();
    std::unique_lock lock(mutex_);
    if (ended_) return std::nullopt;
    changed_.wait(lock, [this] { return ready_.contains(delivered_); });
    Made made = std::move(ready_.extract(delivered_).mapped());
    ++delivered_;
    ended_ = !made.item;
    changed_.notify_all();
    if (made.error) std::rethrow_exception(made.error);
    return std::move(made.item);
  }

 private:
  /// An item, an error, or the end.
  struct Made {
    std::optional<Item> item;
    std::exception_ptr error;
  };

  std::optional<Item> next_now() {
    if (ended_) return std::nullopt;
    ended_ = true;  // stays true if make_ throws
    std::optional<Item> item = make_(delivered_++);
    ended_ = !item;
    return item;
  }

  void run(const std::stop_token& stop) {
    name_this_thread("data");
    while (const std::optional<std::int64_t> index = claim(stop)) {
      Made made;
      try {
        made.item = make_(*index);
      } catch (...) {
        made.error = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      last_reached_ = last_reached_ || !made.item;
      ready_.emplace(*index, std::move(made));
      changed_.notify_all();
    }
  }

  /// Waits until there is space for another item and returns its index; std::nullopt at the end or after a stop
  /// request.
  std::optional<std::int64_t> claim(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const auto has_room = [this] { return claimed_ - delivered_ < static_cast<std::int64_t>(ahead_); };
    changed_.wait(lock, stop, [&] { return last_reached_ || has_room(); });
    if (stop.stop_requested() || last_reached_) return std::nullopt;
    return claimed_++;
  }

  Make make_;
  std::size_t ahead_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_ if there are threads.
  std::map<std::int64_t, Made> ready_;
  std::int64_t claimed_ = 0;
  std::int64_t delivered_ = 0;
  bool last_reached_ = false;          // a worker reached the end or an error
  bool ended_ = false;                 // next() returned the end or an error
  std::vector<std::jthread> workers_;  // last member: joined before the members that they use are destroyed
};

}  // namespace penstock
