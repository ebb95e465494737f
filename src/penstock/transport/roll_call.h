// Which processes of an MPI job have come to their world, as far as it can be known before they can send messages.
// Processes of one host leave notes in a folder of the job. Torch-free.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "penstock/transport/launch_environment.h"

namespace penstock {

class RollCall {
 public:
  /// Reads from `environment` where this job keeps its files, and which rank this process is. Without such variables (a
  /// launcher that sets none) nobody is known to anybody.
  explicit RollCall(const Environment& environment);
  RollCall();

  /// Notes that this process has come to the job's world number `round`, from 1. Never throws: it is there to explain
  /// failures, not to cause them.
  void come(int round) noexcept;

  /// Takes the own note away: the process ends.
  void leave() noexcept;

  /// Who has not come to world number `round`, or has come and cannot answer: "rank 1 (process 4711) is stopped; rank 2
  /// has not come". Says so where nothing is known.
  std::string missing(int round) const;

 private:
  std::filesystem::path note_of(int rank) const;
  std::string trouble_with(int rank, int round) const;

  std::filesystem::path folder_;  // empty: there is none
  std::string job_;
  int rank_ = 0;
  int size_ = 1;
  bool has_other_hosts_ = false;
  bool has_come_ = false;
};

}  // namespace penstock
