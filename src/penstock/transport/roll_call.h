// Records which processes of an MPI job have opened a world, before they can send messages. Each process writes a file
// into a folder of the job, so that only processes of the same host are known. Torch-free.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "penstock/transport/launch_environment.h"

namespace penstock {

class RollCall {
 public:
  /// Reads the job's folder and this process's rank from `environment`. Where the launcher sets no such variables, no
  /// process is recorded.
  explicit RollCall(const Environment& environment);
  RollCall();

  /// Records that this process opens the job's world number `round`, counted from 1. Never throws, because it only
  /// serves error messages.
  void come(int round) noexcept;

  /// Removes this process's file, at the end of the process.
  void leave() noexcept;

  /// The processes that have not opened world number `round`, or have and cannot answer: "rank 1 (process 4711) is
  /// stopped; rank 2 has not come". A sentence that says so where nothing is known.
  std::string missing(int round) const;

 private:
  std::filesystem::path note_of(int rank) const;
  std::string trouble_with(int rank, int round) const;

  std::filesystem::path folder_;  // empty: unknown
  std::string job_;
  int rank_ = 0;
  int size_ = 1;
  bool has_other_hosts_ = false;
  bool has_come_ = false;
};

}  // namespace penstock
