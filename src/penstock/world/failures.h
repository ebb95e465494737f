// The failures of a world's steps, their texts, and whether they have been reported to the program.
#pragma once

#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "penstock/base/error.h"

namespace penstock {

/// The message of `error`, without the stack frames that LibTorch appends to its own.
std::string reason_of(const std::exception& error);
/// The same for an exception of any type, such as "the int 42 was thrown". REQUIRES: `error` is not null.
std::string reason_of(const std::exception_ptr& error);

/// A step failed before any parameter was updated, and every rank abandoned this step alone. The pipeline and its world
/// remain usable, with the parameters of the step before it.
class StepFailure : public RankFailure {
 public:
  using RankFailure::RankFailure;
};

/// The failures of one world. Failures with the same text count as one; of more than 100 the old ones are forgotten.
/// Thread-safe.
class Failures {
 public:
  void add(const std::exception_ptr& error);
  /// Records that a call of the program has thrown `error`.
  void mark_reported(const std::exception_ptr& error);
  bool is_reported(const std::exception_ptr& error) const;
  /// The first failure that no call has thrown; null when there is none.
  std::exception_ptr first_unreported() const;
  /// The text of the newest failure, reported or not; empty when there is none.
  std::string newest() const;
  /// Whether the newest failure is a Misuse. Every process detects it by itself, so no other process must be informed.
  bool is_newest_misuse() const;
  /// Writes failures that no call has thrown to the log, each once. `where` begins the line.
  void log_unreported(const std::string& where);

 private:
  struct Failure {
    std::string reason;
    std::exception_ptr error;
    bool reported = false;
    bool logged = false;
  };

  Failure& find(const std::exception_ptr& error);  // adds it where it is new; with mutex_ held

  mutable std::mutex mutex_;
  std::vector<Failure> all_;  // guarded by mutex_
};

}  // namespace penstock
