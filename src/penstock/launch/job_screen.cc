#include "penstock/launch/job_screen.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>

#include "penstock/base/error.h"

namespace penstock {
namespace {

constexpr std::chrono::milliseconds pause_between_looks{50};

/// Blocks signals while it lives, so that threads started meanwhile receive none and the main thread handles them.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;
  ~WithoutSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

JobScreen::JobScreen(const JobLogs& logs, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    const RankLogs files = logs.of_rank(rank);
    const std::string mark = say("[rank ", rank, "] ");
    awaited_.push_back({files.out, STDOUT_FILENO, mark});
    if (files.err != files.out) awaited_.push_back({files.err, STDERR_FILENO, mark});
  }
  const WithoutSignals here;
  thread_ = std::jthread([this](const std::stop_token& stop) { follow(stop); });
}

JobScreen::~JobScreen() {
  thread_.request_stop();
  thread_.join();
}

void JobScreen::follow(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  for (bool last = false; !last;) {
    last = never.wait_for(lock, stop, pause_between_looks, [&] { return stop.stop_requested(); });
    find_new_logs();
    for (LogFollower& follower : followers_) follower.copy_new(last);
  }
}

void JobScreen::find_new_logs() {
  std::erase_if(awaited_, [&](const Source& source) {
    std::error_code ignored;
    if (!std::filesystem::exists(source.path, ignored)) return false;
    followers_.emplace_back(source.path, source.stream, source.mark);
    return true;
  });
}

}  // namespace penstock
