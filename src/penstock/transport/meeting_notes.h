// What processes write into a store before they are connected, as text: a note of each, and the list that rank 0 makes
// of the notes. store_meeting.h has the order in which they are written. Torch-free.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/transport/buffer_network.h"

namespace penstock {

/// What one process says of itself. All ranks are numbered from 0.
struct MeetingNote {
  std::string build;  // build_identity(), one line
  int rank = 0;
  int size = 1;    // the number of ranks with which it was started
  std::string id;  // random: of this process's part in one meeting
  ProcessPlace place = {};
  std::uint64_t started = 0;  // start_of_process()
  std::int64_t twin = 0;      // the number of another living process of the same rank; 0: none is known
};

/// The note of this process, with a new id.
MeetingNote own_note(int rank, int size);

std::string text_of(const MeetingNote& note);
/// Fields that `text` lacks have their defaults.
MeetingNote note_in(const std::string& text);

/// The processes of one meeting as its rank 0 knows them.
struct MeetingList {
  enum class State : int {
    gathering,   // some ranks have not come
    complete,    // each process in it confirms it
    connecting,  // all have confirmed it: they connect now
    differing,   // the end: builds or sizes differ
    misuse,      // the end, for the reason `why`
    failure      // the same, for no mistake of the user's
  };
  State state = State::gathering;
  std::string job;  // random: of a complete list
  std::string why;
  std::vector<MeetingNote> notes;  // by rank, each rank at most once

  /// Null where the list has no such rank.
  const MeetingNote* of(int rank) const;
  bool contains(const std::string& id) const;
  bool is_end() const { return state >= State::differing; }
};

std::string text_of(const MeetingList& list);
MeetingList list_in(const std::string& text);

/// Whether the two processes are on one host, and number processes alike.
bool are_neighbours(const MeetingNote& one, const MeetingNote& other);

/// Whether `other` is another process than `own`, this one, and certainly lives. A process of another host is never
/// known to live.
bool is_another_living_process(const MeetingNote& own, const MeetingNote& other);

/// How builds or sizes differ, for the process `own` of the list; builds come first. Empty where all are equal.
std::string difference_in(const MeetingList& list, const MeetingNote& own);

struct MissingRanks {
  std::string text;        // "rank 1 has not come; rank 2 (process 4711) is stopped"; empty: none is missing
  bool is_misuse = false;  // some have not come at all
};
/// The ranks of `own`'s job that are not in the list, have ended or are stopped, and those of `silent`, which have come
/// and do not answer any more.
MissingRanks missing_in(const MeetingList& list, const MeetingNote& own, const std::vector<int>& silent = {});

/// What keeps a rank 0 that has come from taking `own` into its list: "rank 0 (process 4711) is stopped".
std::string trouble_with_leader(const MeetingNote& leader, const MeetingNote& own);

/// "the world is incomplete after 60 s (the start deadline, at the rendezvous): WHY"
std::string incomplete_text(std::chrono::milliseconds deadline, const std::string& why);

/// "rank 1 was started twice, as process 4711 and as process 4712: ...". `note` has a twin.
std::string twice_text(const MeetingNote& note);

/// Ends a meeting: throws ConfigError or TransportError with the reason of `list`, for the process `own` of it.
/// REQUIRES: list.is_end().
[[noreturn]] void throw_end(const MeetingList& list, const MeetingNote& own);

}  // namespace penstock
