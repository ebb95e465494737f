// Ranks as threads, for tests: run_world(4, [&](int rank) { ... }).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace penstock::test {

/// The outcome of every rank of a world.
struct WorldResult {
  std::vector<std::exception_ptr> errors;  // by rank; null for success
  int first_failed = -1;                   // the rank that failed first in time

  /// The text of a rank's exception; empty for success.
  std::string what(int rank) const {
    if (!errors[static_cast<std::size_t>(rank)]) return "";
    try {
      std::rethrow_exception(errors[static_cast<std::size_t>(rank)]);
    } catch (const std::exception& error) {
      return error.what();
    } catch (...) {
      return "something that is no std::exception";
    }
  }
};

/// Runs `rank_main(0..n-1)` on a thread each and waits for all of them. When they take longer than `timeout`, prints
/// the state of every rank and ends the process: a hanging test must fail, not hang.
inline WorldResult try_world(int n, const std::function<void(int)>& rank_main,
                             std::chrono::seconds timeout = std::chrono::seconds(60)) {
  WorldResult result;
  result.errors.resize(static_cast<std::size_t>(n));
  std::vector<std::string> states(static_cast<std::size_t>(n), "still running");
  std::mutex mutex;
  std::condition_variable changed;
  int running = n;

  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      std::exception_ptr error;
      try {
        rank_main(rank);
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      result.errors[index] = error;
      states[index] = error ? "failed: " + result.what(rank) : "done";
      if (error && result.first_failed < 0) result.first_failed = rank;
      --running;
      changed.notify_all();
    });

  {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, timeout, [&] { return running == 0; })) {
      std::fprintf(stderr, "a world of %d ranks did not end within %lld s:\n", n,
                   static_cast<long long>(timeout.count()));
      for (int rank = 0; rank < n; ++rank)
        std::fprintf(stderr, "  rank %d: %s\n", rank, states[static_cast<std::size_t>(rank)].c_str());
      std::abort();
    }
  }
  for (std::thread& thread : threads) thread.join();
  return result;
}

/// The same; rethrows the exception of the rank that failed first.
inline void run_world(int n, const std::function<void(int)>& rank_main,
                      std::chrono::seconds timeout = std::chrono::seconds(60)) {
  const WorldResult result = try_world(n, rank_main, timeout);
  if (result.first_failed >= 0) std::rethrow_exception(result.errors[static_cast<std::size_t>(result.first_failed)]);
}

}  // namespace penstock::test
