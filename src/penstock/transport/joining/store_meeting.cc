#include "penstock/transport/joining/store_meeting.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/transport/joining/build_identity.h"
#include "penstock/transport/joining/start_deadline.h"

namespace penstock {
namespace {

const std::string start_key = "start", wait_answer = "wait", join_answer = "join";

std::string note_key(const std::string& start, int rank) { return say(start, "/rank ", rank); }
std::string here_key(const std::string& start, int rank) { return say(start, "/here ", rank); }
std::string list_key(const std::string& start) { return start + "/all"; }
std::string read_key(const std::string& start) { return start + "/has read"; }
std::string answer_key(const std::string& id) { return "answer to " + id; }

std::string text_of(const MeetingNote& note) {
  const auto& [host, process] = note.place;
  return say(note.build, "\n", note.rank, " ", note.size, " ", host, " ", process.numbered_by, " ", process.number, " ",
             note.id, "\n");
}

MeetingNote read_note(std::istream& lines) {
  MeetingNote note;
  std::string numbers;
  std::getline(lines, note.build);
  std::getline(lines, numbers);
  std::istringstream(numbers) >> note.rank >> note.size >> note.place.host >> note.place.process.numbered_by >>
      note.place.process.number >> note.id;
  return note;
}

/// How builds or sizes differ from rank 0's; builds come first. Empty if all are equal.
std::string difference_in(const std::map<int, MeetingNote>& joined) {
  const MeetingNote& first = joined.at(0);
  for (const auto& [rank, note] : joined)
    if (note.build != first.build)
      return say("rank ", rank, " runs ", note.build, ", and rank 0 runs ", first.build,
                 ": install the same build on all hosts");
  for (const auto& [rank, note] : joined)
    if (note.size != first.size)
      return say("rank ", rank, " was started with WORLD_SIZE=", note.size, ", rank 0 with ", first.size,
                 ": start all ranks with the same number");
  return "";
}

class Participant {
 public:
  Participant(c10d::Store& store, const MeetingNote& own, std::chrono::milliseconds deadline,
              const std::atomic<bool>& is_over)
      : store_(store), own_(own), deadline_(deadline), is_over_(is_over) {}

  Meeting meet() {
    Meeting meeting{own_.rank == 0 ? lead() : follow(), {}};
    std::istringstream list(store_.get_to_str(list_key(meeting.start)));
    while (list.peek() != std::istringstream::traits_type::eof()) meeting.places.push_back(read_note(list).place);
    store_.set(here_key(meeting.start, own_.rank), join_answer);
    while (true) {
      const bool is_last_look = is_over_;
      std::string silent;
      for (int rank = 0; rank < own_.size; ++rank) {
        if (store_.check({here_key(meeting.start, rank)})) continue;
        const std::string trouble = trouble_with(meeting.places[static_cast<std::size_t>(rank)]);
        silent += say(silent.empty() ? "" : "; ", "rank ", rank,
                      trouble.empty() ? " has joined, and does not respond any more" : trouble);
      }
      if (silent.empty()) return meeting;
      if (is_last_look) throw TransportError(incomplete_text(deadline_, silent));
      pause();
    }
  }

 private:
  /// Soon at first, and seldom after a long wait, because one store serves all.
  void pause() {
    std::this_thread::sleep_for(pause_);
    pause_ = std::min<std::chrono::nanoseconds>(pause_ * 9 / 8, std::chrono::milliseconds(20));
  }

  /// The notes of those who have joined `start`, by rank.
  std::map<int, MeetingNote> joined_in(const std::string& start) {
    std::map<int, MeetingNote> joined;
    for (int rank = 0; rank < size_of(joined); ++rank) {
      if (!store_.check({note_key(start, rank)})) continue;
      std::istringstream lines(store_.get_to_str(note_key(start, rank)));
      joined.emplace(rank, read_note(lines));
    }
    return joined;
  }
  /// The largest number of ranks with which a process was started.
  int size_of(const std::map<int, MeetingNote>& joined) const {
    int size = own_.size;
    for (const auto& [rank, note] : joined) size = std::max(size, note.size);
    return size;
  }
  std::string missing_among(const std::map<int, MeetingNote>& joined) const {
    std::vector<int> missing;
    for (int rank = 0; rank < size_of(joined); ++rank)
      if (!joined.contains(rank)) missing.push_back(rank);
    return missing.empty() ? "" : incomplete_text(deadline_, missing_text(missing));
  }
  void join(const std::string& start) {
    own_.id = own_.rank == 0 ? start : random_digits();
    store_.set(note_key(start, own_.rank), text_of(own_));
  }

  /// Rank 0's part. Returns the start in which all have joined.
  std::string lead() {
    const std::string start = random_digits();
    join(start);
    store_.set(start_key, start);
    std::set<std::string> answered;
    while (true) {
      const bool is_last_look = is_over_;
      const auto joined = joined_in(start);
      for (const auto& [rank, note] : joined)
        if (answered.insert(note.id).second) store_.set(answer_key(note.id), wait_answer);
      const std::string missing = missing_among(joined);
      if (!missing.empty() && !is_last_look) {
        pause();
        continue;
      }
      const std::string difference = difference_in(joined);
      if (!difference.empty() || !missing.empty()) refuse(joined, difference.empty() ? missing : difference);
      std::string list;
      for (const auto& [rank, note] : joined) list += text_of(note);
      store_.set(list_key(start), list);
      for (const auto& [rank, note] : joined) store_.set(answer_key(note.id), join_answer);
      return start;
    }
  }

  [[noreturn]] void refuse(const std::map<int, MeetingNote>& joined, const std::string& why) {
    try {
      for (const auto& [rank, note] : joined) store_.set(answer_key(note.id), why);
      const auto others = static_cast<std::int64_t>(joined.size()) - 1;
      for (StartDeadline left(time_to_read); store_.add(read_key(own_.id), 0) < others && !left.is_over();)
        std::this_thread::sleep_for(StartDeadline::look_every);
    } catch (const std::exception&) {
      // The store has ended. This process still knows what to say.
    }
    throw ConfigError(why);
  }

  /// The part of another rank. Returns the start in which all have joined.
  std::string follow() {
    std::string start;
    bool is_known = false;  // to the rank 0 of `start`, which therefore runs
    while (true) {
      const bool is_last_look = is_over_;
      if (store_.check({start_key})) {
        if (const std::string newest = store_.get_to_str(start_key); newest != start) {
          start = newest;
          is_known = false;
          join(start);
        }
        if (store_.check({answer_key(own_.id)})) {
          const std::string answer = store_.get_to_str(answer_key(own_.id));
          if (answer == join_answer) return start;
          if (answer != wait_answer) {
            store_.add(read_key(start), 1);
            throw ConfigError(answer);
          }
          is_known = true;
        }
      }
      if (is_last_look) throw ConfigError(start.empty() ? rank_0_is_missing() : why_not_joined(start, is_known));
      pause();
    }
  }

  std::string rank_0_is_missing() const { return incomplete_text(deadline_, missing_text({0})); }

  /// Reads all that it needs before it tells rank 0, which may then end the store.
  std::string why_not_joined(const std::string& start, bool is_known) {
    const std::string why = reason_in(start, is_known);
    if (is_known) store_.add(read_key(start), 1);
    return why;
  }

  std::string reason_in(const std::string& start, bool is_known) {
    const auto joined = joined_in(start);
    if (const MeetingNote& last = joined.at(own_.rank); last.id != own_.id)
      return incomplete_text(
          deadline_, say("rank ", own_.rank, " was started twice, as process ", own_.place.process.number,
                         " and as process ", last.place.process.number, ": start each process with a rank of its own"));
    if (!is_known && store_.check({list_key(start)}))
      return say(rank_0_is_missing(), "; if the job that has met in this store before still runs, rank ", own_.rank,
                 " was started twice");
    const std::string difference = is_known ? difference_in(joined) : "";
    const std::string missing = is_known ? missing_among(joined) : rank_0_is_missing();
    if (!difference.empty() || !missing.empty()) return difference.empty() ? missing : difference;
    return incomplete_text(deadline_, "rank 0 has joined, and does not respond any more");
  }

  c10d::Store& store_;
  MeetingNote own_;
  const std::chrono::milliseconds deadline_;
  const std::atomic<bool>& is_over_;
  std::chrono::nanoseconds pause_ = std::chrono::milliseconds(2);
};

}  // namespace

MeetingNote own_note(int rank, int size) { return {rank, size, build_identity(), own_place(), ""}; }

Meeting meet_in(c10d::Store& store, const MeetingNote& own, std::chrono::milliseconds deadline,
                const std::atomic<bool>& is_over) {
  return Participant(store, own, deadline, is_over).meet();
}

}  // namespace penstock
