// The meeting of a job's processes in a c10d store, in which former starts may have left their keys.
//
//   rank 0     writes a random id, START, at "start".
//   all        write their notes at "START/rank r", again when another START appears.
//   rank 0     writes the list of all notes at "START/all" when they are complete, or at its deadline.
//   all        find their own id in the list, and judge it alike; then they write "START/here r", and wait until every
//              rank has.
//
// Each note has a random id, so what a former start has left is never taken for this one. Of several processes with one
// rank the last one to write its note counts. Rank 0 counts its looks at "START/looks", so that others notice whether
// it still runs.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "penstock/transport/processes/peer_processes.h"

namespace penstock::joining {

/// What a process tells the others before they are connected. Ranks count from 0.
struct MeetingNote {
  int rank = 0;
  int size = 1;  // the number of ranks with which it was started
  std::string build;
  processes::ProcessPlace place;
  std::string id;  // random, of one call of meet_in()
};

/// The note of this process, without an id.
MeetingNote own_note(int rank, int size);

/// The processes that have met.
struct Meeting {
  std::string start;                            // random: a prefix of the store that nobody has used
  std::vector<processes::ProcessPlace> places;  // by rank
};

/// How long rank 0 waits until the others have read why they cannot join: the store may end with it.
inline constexpr std::chrono::seconds time_to_read{2};

/// Waits until all ranks have joined. Throws ConfigError if builds or sizes differ, and for ranks that have not joined
/// when `is_over` becomes true; then TransportError for those that have joined and do not answer. `deadline` is for
/// messages. Throws what `store` throws.
Meeting meet_in(c10d::Store& store, const MeetingNote& own, std::chrono::milliseconds deadline,
                const std::atomic<bool>& is_over);

}  // namespace penstock::joining
