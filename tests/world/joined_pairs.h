// Four processes, joined by the program itself, and in two pairs: ranks 0 and 2, ranks 1 and 3.
#pragma once

#include <memory>
#include <string>

#include "penstock/transport/joined_processes.h"

namespace penstock::test {

class JoinedPairs {
 public:
  virtual ~JoinedPairs() = default;
  virtual int rank() const = 0;  // among the four
  virtual std::shared_ptr<JoinedProcesses> own_pair() const = 0;
  virtual std::shared_ptr<JoinedProcesses> all() const = 0;
  /// A message of the program's own to all.
  virtual int sum_of_ranks() const = 0;
  /// To be called by all after the last world.
  virtual void leave() = 0;
};

/// Joins the processes, by "mpi" or by a "store" at MASTER_ADDR. Throws ConfigError where this build lacks that.
std::unique_ptr<JoinedPairs> join_pairs(const std::string& by);

}  // namespace penstock::test
