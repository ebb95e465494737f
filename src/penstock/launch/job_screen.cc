#include "penstock/launch/job_screen.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "penstock/base/error.h"
#include "penstock/base/process.h"
#include "penstock/launch/blocked_signals.h"

namespace penstock {
JobScreen::JobScreen(const JobLogs& logs, int ranks, ShownRanks shown) {
  const int count = shown == ShownRanks::all ? ranks : shown == ShownRanks::first ? 1 : 0;
  for (int rank = 0; rank < count; ++rank) {
    const RankLogs files = logs.of_rank(rank);
    const std::string mark = shown == ShownRanks::all ? say("[rank ", rank, "] ") : std::string();
    awaited_.push_back({files.out, STDOUT_FILENO, mark});
    if (files.err != files.out) awaited_.push_back({files.err, STDERR_FILENO, mark});
  }
  const BlockedSignals here;  // the thread receives none: the main thread handles them
  thread_ = std::jthread([this](const std::stop_token& stop) { follow(stop); });
}

JobScreen::~JobScreen() {
  thread_.request_stop();
  thread_.join();
}

void JobScreen::follow(const std::stop_token& stop) {
  name_this_thread("screen");
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  for (bool last = false; !last;) {
    last = never.wait_for(lock, stop, polling_interval, [&] { return stop.stop_requested(); });
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
