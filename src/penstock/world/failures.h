// What went wrong in the steps of a world, and whether anybody has been told.
#pragma once

#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "penstock/base/error.h"

namespace penstock {

/// A step failed before any parameter was updated: every rank gave this step up, and no other one. The pipeline and its
/// world go on, with the parameters of the step before it.
class StepFailure : public RankFailure {
 public:
  using RankFailure::RankFailure;
};

/// The failures of one world. Those that say the same are one. Thread-safe.
class Failures {
 public:
  void add(const std::exception_ptr& error);
  /// The caller who asked for a result has been thrown `error`.
  void told(const std::exception_ptr& error);
  bool is_told(const std::exception_ptr& error) const;
  /// The first one that nobody has been told; null when there is none.
  std::exception_ptr untold() const;
  /// What the newest one says, told or not; empty when there is none.
  std::string newest() const;
  /// Whether the newest one is a Misuse, which every process finds by itself: it needs no telling.
  bool is_newest_misuse() const;
  /// Writes those that nobody has been told to the log, each once.
  void log_untold(const std::string& where);

 private:
  struct Failure {
    std::string reason;
    std::exception_ptr error;
    bool told = false;
    bool logged = false;
  };

  Failure& find(const std::exception_ptr& error);  // adds it where it is new; with mutex_ held

  mutable std::mutex mutex_;
  std::vector<Failure> all_;  // guarded by mutex_
};

}  // namespace penstock
