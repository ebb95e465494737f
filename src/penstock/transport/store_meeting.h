// The meeting of a job's processes in a c10d store that may have served former starts of the job, whose notes are still
// in it: of processes that have ended, and of some that still run.
//
//   rank 0   writes its note, with a random id S, at "rank 0", and publishes a list of those who have come under S
//            whenever it changes.
//   others   register at the S that they find at "rank 0", and again when another rank 0 writes there. A process
//            believes a list only if its own id is in it. When a list is complete, they confirm its random job id.
//   rank 0   publishes the list as confirmed when all have, or why there will be none, and waits shortly for readers.
//
// So what a former start has left is never taken for this one: nobody registers at an S before it exists, and nobody
// confirms a job id twice. Of two processes with one rank the newer one counts, and the older one may be ending; where
// both live on, rank 0 ends the meeting.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "penstock/transport/meeting_notes.h"

namespace penstock {

/// How long rank 0 waits until all others know why the meeting has ended: the store may end with it.
inline constexpr std::chrono::seconds time_to_read{2};

/// What the thread that meets and the one that waits for it know of each other.
struct MeetingProgress {
  std::atomic<bool> is_over{false};  // set by the waiting thread: the start deadline has passed
  std::mutex mutex;
  std::optional<std::string> unresolved;  // guarded by mutex: why_unresolved(); none: the name is looked up
  bool has_store = false;                 // guarded by mutex
  bool has_met = false;                   // guarded by mutex
  MeetingList list;                       // guarded by mutex: the newest one with this process; without notes: none
  std::optional<MeetingNote> leader;      // guarded by mutex: rank 0, where this is another rank and it has come

  void keep(const MeetingList& newest) {
    const std::lock_guard lock(mutex);
    list = newest;
    has_met = newest.state == MeetingList::State::connecting;
  }
};

struct MeetingRules {
  std::chrono::milliseconds deadline;  // for messages
  /// Whether a process keeps its rank for all its life, as a launcher's processes do.
  bool ranks_are_fixed = true;
};

/// Waits until all ranks have come, and returns their list. Its job id is new: a prefix of the store that nobody has
/// used. Throws ConfigError where builds or sizes differ, where a rank was started twice, and once progress.is_over for
/// ranks that have not come; TransportError for those that are stopped or have ended. All processes that have come
/// throw the same kind. Throws what `store` throws.
MeetingList meet_in(c10d::Store& store, const MeetingNote& own, const MeetingRules& rules, MeetingProgress& progress);

}  // namespace penstock
