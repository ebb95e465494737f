// Items made ahead of their use, on a thread of their own. Torch-free, so that it runs under TSAN.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

namespace penstock {

/// Calls `make` until it returns nothing, at most `ahead` items before they are asked for. With `ahead` = 0 there is
/// no thread: every item is made when it is asked for. An exception in `make` ends the stream and is thrown by the
/// next() that would have returned that item; the items before it are delivered first.
/// next() belongs to one thread at a time. Destruction waits for the item in the making, not for the rest.
template <class Item>
class Prefetcher {
 public:
  using Make = std::function<std::optional<Item>()>;

  Prefetcher(Make make, std::size_t ahead) : make_(std::move(make)), ahead_(ahead) {
    if (ahead_ > 0) thread_ = std::jthread([this](std::stop_token stop) { run(stop); });
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next item; nothing once the stream has ended.
  std::optional<Item> next() {
    if (ahead_ == 0) return next_now();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ready_.empty() || ended_; });
    if (ready_.empty()) {
      if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
      return std::nullopt;
    }
    std::optional<Item> item(std::move(ready_.front()));
    ready_.pop_front();
    changed_.notify_all();
    return item;
  }

 private:
  std::optional<Item> next_now() {
    if (ended_) return std::nullopt;
    ended_ = true;  // holds if make_ throws
    std::optional<Item> item = make_();
    ended_ = !item;
    return item;
  }

  void run(const std::stop_token& stop) {
    std::exception_ptr error;
    try {
      while (wait_for_room(stop)) {
        std::optional<Item> item = make_();
        if (!item) break;
        const std::lock_guard lock(mutex_);
        ready_.push_back(std::move(*item));
        changed_.notify_all();
      }
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    ended_ = true;
    changed_.notify_all();
  }

  /// False when nobody wants more.
  bool wait_for_room(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop, [this] { return ready_.size() < ahead_; });
    return !stop.stop_requested();
  }

  Make make_;
  std::size_t ahead_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_ where there is a thread.
  std::deque<Item> ready_;
  std::exception_ptr error_;
  bool ended_ = false;
  std::jthread thread_;  // last: stopped and joined before anything it uses goes away
};

}  // namespace penstock
