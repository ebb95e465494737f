#include "penstock/transport/joining/store_meeting.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <thread>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/transport/joining/start.h"

namespace penstock::joining {
namespace {

using Notes = std::map<int, MeetingNote>;  // by rank

std::string text_of(const MeetingNote& note) {
  const auto& [host, process] = note.place;
  return say(note.build, "\n", note.rank, " ", note.size, " ", host, " ", process.numbered_by, " ", process.number, " ",
             note.id, "\n");
}

Notes notes_in(const std::string& text) {
  Notes notes;
  std::istringstream lines(text);
  for (std::string build, numbers; std::getline(lines, build) && std::getline(lines, numbers);) {
    MeetingNote note;
    note.build = build;
    std::istringstream(numbers) >> note.rank >> note.size >> note.place.host >> note.place.process.numbered_by >>
        note.place.process.number >> note.id;
    notes[note.rank] = note;
  }
  return notes;
}

/// How builds or sizes differ from rank 0's; builds come first. Empty if all are equal.
std::string difference_in(const Notes& notes) {
  const MeetingNote& first = notes.at(0);
  for (const auto& [rank, note] : notes)
    if (note.build != first.build)
      return say("rank ", rank, " runs ", note.build, ", and rank 0 runs ", first.build,
                 ": install the same build on all hosts");
  for (const auto& [rank, note] : notes)
    if (note.size != first.size)
      return say("rank ", rank, " was started with WORLD_SIZE=", note.size, ", rank 0 with ", first.size,
                 ": start all ranks with the same number");
  return "";
}

class Participant {
 public:
  Participant(c10d::Store& store, const MeetingNote& own, std::chrono::milliseconds deadline,
              const std::atomic<bool>& is_over)
      : store_(store), own_(own), deadline_(deadline), is_over_(is_over) {
    own_.id = random_digits();
  }

  Meeting meet() {
    const Notes all = join();
    if (const std::string why = why_refused(all); !why.empty()) refuse(why, all);
    store_.set(key("here", own_.rank), own_.id);
    Meeting meeting{start_, {}};
    for (const auto& [rank, note] : all) meeting.places.push_back(note.place);
    while (true) {
      const bool is_last_look = is_over_;
      std::string silent;
      for (const auto& [rank, note] : all) {
        if (store_.check({key("here", rank)})) continue;
        const std::string trouble = processes::trouble_with(note.place);
        silent += say(silent.empty() ? "" : "; ", "rank ", rank,
                      trouble.empty() ? " has joined, and does not respond any more" : trouble);
      }
      if (silent.empty()) return meeting;
      if (is_last_look) throw TransportError(incomplete_text(deadline_, silent));
      pause();
    }
  }

 private:
  /// A key of this start, perhaps of one rank there.
  std::string key(const char* what) const { return say(start_, "/", what); }
  std::string key(const char* what, int rank) const { return say(start_, "/", what, " ", rank); }

  /// Soon at first, and seldom after a long wait, because one store serves all.
  void pause() {
    std::this_thread::sleep_for(pause_);
    pause_ = std::min<std::chrono::nanoseconds>(pause_ * 9 / 8, std::chrono::milliseconds(20));
  }

  /// The notes that rank 0 has listed in the newest start, with the own one among them.
  Notes join() {
    if (own_.rank == 0) begin(random_digits());
    while (true) {
      const bool is_last_look = is_over_;
      if (own_.rank == 0) {
        store_.add(key("looks"), 1);
        const Notes notes = notes_of_start();
        if (is_last_look || why_missing(notes).empty()) list(notes);
      } else if (store_.check({start_key})) {
        if (const std::string newest = store_.get_to_str(start_key); newest != start_) begin(newest);
      }
      if (!start_.empty() && store_.check({key("all")}))
        if (const Notes all = notes_in(store_.get_to_str(key("all"))); is_in(all)) return all;
      if (is_last_look) refuse(why_not_joined(), {});
      pause();
    }
  }
  void begin(const std::string& start) {
    start_ = start;
    looks_ = store_.add(key("looks"), 0);
    store_.set(key("rank", own_.rank), text_of(own_));
    if (own_.rank == 0) store_.set(start_key, start_);
  }
  void list(const Notes& notes) {
    std::string text;
    for (const auto& [rank, note] : notes) text += text_of(note);
    store_.set(key("all"), text);
  }
  bool is_in(const Notes& notes) const {
    const auto own = notes.find(own_.rank);
    return own != notes.end() && own->second.id == own_.id;
  }

  Notes notes_of_start() {
    Notes notes;
    for (int rank = 0; rank < size_of(notes); ++rank)
      if (store_.check({key("rank", rank)})) notes.merge(notes_in(store_.get_to_str(key("rank", rank))));
    return notes;
  }
  /// The largest number of ranks with which a process was started.
  int size_of(const Notes& notes) const {
    int size = own_.size;
    for (const auto& [rank, note] : notes) size = std::max(size, note.size);
    return size;
  }

  std::string why_missing(const Notes& notes) const {
    std::vector<int> missing;
    for (int rank = 0; rank < size_of(notes); ++rank)
      if (!notes.contains(rank)) missing.push_back(rank);
    return missing.empty() ? "" : incomplete_text(deadline_, missing_text(missing));
  }
  std::string why_refused(const Notes& notes) const {
    const std::string difference = difference_in(notes);
    return difference.empty() ? why_missing(notes) : difference;
  }
  /// Why this rank is not in the list of its start at its deadline.
  std::string why_not_joined() {
    const std::string without_rank_0 = incomplete_text(deadline_, missing_text({0}));
    if (start_.empty()) return without_rank_0;
    const Notes notes = notes_of_start();
    if (!is_in(notes))
      return incomplete_text(
          deadline_,
          say("rank ", own_.rank, " was started twice, as process ", own_.place.process.number, " and as process ",
              notes.at(own_.rank).place.process.number, ": start each process with a rank of its own"));
    if (store_.check({key("all")}) && why_refused(notes_in(store_.get_to_str(key("all")))).empty())
      return say(without_rank_0, "; if the job that has met in this store before still runs, rank ", own_.rank,
                 " was started twice");
    if (store_.add(key("looks"), 0) == looks_) return without_rank_0;
    const std::string why = why_refused(notes);
    return why.empty() ? incomplete_text(deadline_, "rank 0 has joined, and does not respond any more") : why;
  }

  /// Throws ConfigError. Rank 0, with which the store may end, waits until the others in `all` have read why.
  [[noreturn]] void refuse(const std::string& why, const Notes& all) {
    try {
      const auto others = static_cast<std::int64_t>(all.size()) - 1;
      if (own_.rank != 0 && !start_.empty()) store_.add(key("has read"), 1);
      for (StartDeadline left(time_to_read);
           own_.rank == 0 && store_.add(key("has read"), 0) < others && !left.is_over();)
        std::this_thread::sleep_for(StartDeadline::look_every);
    } catch (const std::exception&) {
      // The store has ended. `why` needs nothing from it.
    }
    throw ConfigError(why);
  }

  static constexpr const char* start_key = "start";

  c10d::Store& store_;
  MeetingNote own_;
  const std::chrono::milliseconds deadline_;
  const std::atomic<bool>& is_over_;
  std::string start_;       // the newest that this rank has joined; empty: none yet
  std::int64_t looks_ = 0;  // how often rank 0 had looked for notes then
  std::chrono::nanoseconds pause_ = std::chrono::milliseconds(2);
};

}  // namespace

MeetingNote own_note(int rank, int size) { return {rank, size, build_identity(), processes::own_place(), ""}; }

Meeting meet_in(c10d::Store& store, const MeetingNote& own, std::chrono::milliseconds deadline,
                const std::atomic<bool>& is_over) {
  return Participant(store, own, deadline, is_over).meet();
}

}  // namespace penstock::joining
