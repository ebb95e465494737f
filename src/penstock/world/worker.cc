#include "penstock/world/worker.h"

#include <cfenv>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/process.h"

namespace penstock {
namespace {

/// Makes the process exit without destroying static objects, which the abandoned thread may still use. Exit handlers
/// run in reverse order of registration, so this one comes before the earlier ones.
void end_without_teardown() {
  static std::once_flag once;
  std::call_once(once, [] {
    ::on_exit(
        [](int status, void*) {
          std::fflush(nullptr);
          std::_Exit(status);
        },
        nullptr);
  });
}

}  // namespace

Worker::Worker(WorldRank rank, int threads) : state_(std::make_shared<State>()) {
  thread_ = std::thread([state = state_, rank, threads] {
    name_this_thread(say("rank ", rank.value()));
    run(state, threads);
  });
}

Worker::~Worker() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->changed.notify_all();
  thread_.join();
}

void Worker::post(std::function<void()> job) {
  // Autograd and autocast modes are thread-local in LibTorch; flush-denormal is part of the floating-point environment.
  std::fenv_t floating_point;
  std::fegetenv(&floating_point);
  auto with_settings = [job = std::move(job), settings = at::ThreadLocalState(), floating_point] {
    const at::ThreadLocalStateGuard guard(settings);
    std::fesetenv(&floating_point);
    job();
  };
  {
    std::lock_guard lock(state_->mutex);
    state_->jobs.push_back(std::move(with_settings));
  }
  state_->changed.notify_all();
}

bool Worker::abandon(std::chrono::milliseconds timeout) {
  if (!thread_.joinable()) return true;
  std::unique_lock lock(state_->mutex);
  state_->jobs.clear();
  state_->ending = true;
  state_->changed.notify_all();
  const bool ended = state_->changed.wait_for(lock, timeout, [&] { return state_->ended; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    end_without_teardown();
    thread_.detach();
  }
  return ended;
}

std::function<std::int64_t()> Worker::busy_since_ns() const {
  return [state = state_] { return state->busy_since_ns.load(); };
}

void Worker::run(const std::shared_ptr<State>& state, int threads) {
  // The first use of ATen's thread pool in a thread overwrites the setting: use it before setting it.
  at::get_num_threads();
  at::set_num_threads(threads);
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->ending || !state->jobs.empty(); });
    if (state->jobs.empty()) break;
    std::function<void()> job = std::move(state->jobs.front());
    state->jobs.pop_front();
    lock.unlock();
    state->busy_since_ns = now_ns();
    job();
    job = nullptr;  // destroys its captures before the lock is taken
    state->busy_since_ns = 0;
    lock.lock();
  }
  state->ended = true;
  state->changed.notify_all();
}

}  // namespace penstock
