// Says why an attempt of a launched job failed.
#pragma once

#include <string>
#include <vector>

#include "penstock/launch/job_logs.h"
#include "penstock/launch/process_group.h"

namespace penstock {

struct FailedAttempt {
  int exit_code = 1;
  std::string cause = {};  // "rank 1 of 2: signal 9 (Killed)"
};

/// An attempt that has ended.
struct EndedAttempt {
  const GroupEnd& launcher;
  const JobLogs& logs;
  const std::vector<Ending>& endings;  // of the journal, or those of them that count
  int ranks = 0;
};

/// Prints the first cause, with the last output of the rank that failed first.
FailedAttempt report_failure(const EndedAttempt& attempt);

}  // namespace penstock
