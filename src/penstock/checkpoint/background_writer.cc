#include "penstock/checkpoint/background_writer.h"

#include <chrono>
#include <utility>

#include "penstock/base/process.h"

namespace penstock {

BackgroundWriter::~BackgroundWriter() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundWriter::start(std::function<void()> work) {
  wait();
  state_ = std::make_shared<State>();
  state_->has_ended = false;
  thread_ = std::thread([state = state_, work = std::move(work)]() mutable {
    name_this_thread("checkpoint");
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    work = nullptr;  // what it owns ends first
    const std::lock_guard lock(state->mutex);
    state->error = std::move(error);
    state->has_ended = true;
    state->changed.notify_all();
  });
}

void BackgroundWriter::wait(const std::function<void()>& check) {
  constexpr std::chrono::milliseconds interval{20};
  std::unique_lock lock(state_->mutex);
  while (!state_->changed.wait_for(lock, interval, [this] { return state_->has_ended; })) {
    lock.unlock();
    check();
    lock.lock();
  }
  const std::exception_ptr error = std::exchange(state_->error, nullptr);
  lock.unlock();
  if (thread_.joinable()) thread_.join();
  if (error) std::rethrow_exception(error);
}

void BackgroundWriter::check() {
  if (has_ended()) wait();
}

bool BackgroundWriter::has_ended() const {
  const std::lock_guard lock(state_->mutex);
  return state_->has_ended;
}

void BackgroundWriter::abandon() {
  if (thread_.joinable()) thread_.detach();
}

}  // namespace penstock
