#include "penstock/transport/store_meeting.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/transport/start_deadline.h"

namespace penstock {
namespace {

/// How long rank 0 waits for further ranks when it knows that builds or sizes differ, so that these can say it too.
constexpr std::chrono::seconds time_to_come{3};
/// How long a process of a former start may take to end when its successor has come.
constexpr std::chrono::seconds time_to_make_way{3};
/// Every process looks into the store again and again: soon at first, and seldom when it has waited for long, because
/// the one store serves all.
constexpr std::chrono::milliseconds shortest_pause{2}, longest_pause{20};

const std::string leader_key = "rank 0";
std::string list_key(const std::string& leader) { return say(leader, "/list"); }
std::string count_key(const std::string& leader) { return say(leader, "/registered"); }
std::string note_key(const std::string& leader, std::int64_t number) { return say(leader, "/note ", number); }
std::string readers_key(const std::string& leader) { return say(leader, "/has read"); }
std::string confirm_key(const std::string& job, int rank) { return say(job, "/rank ", rank, " confirms"); }

class LookPauses {
 public:
  void pause() {
    std::this_thread::sleep_for(length_);
    length_ = std::min<std::chrono::nanoseconds>(length_ * 9 / 8, longest_pause);
  }

 private:
  std::chrono::nanoseconds length_ = shortest_pause;
};

/// Another process with this one's rank.
class Twin {
 public:
  explicit Twin(const MeetingNote& own) : own_(own) {}

  /// Whether `other` has been seen to live for longer than one of a former start needs to end. To be called again and
  /// again.
  bool lives_on(const MeetingNote& other) {
    if (!is_another_living_process(own_, other)) {
      left_.reset();
      return false;
    }
    if (!left_ || id_ != other.id) left_.emplace(time_to_make_way);
    id_ = other.id;
    return left_->is_over();
  }

 private:
  const MeetingNote& own_;
  std::string id_;
  std::optional<StartDeadline> left_;
};

class Participant {
 public:
  Participant(c10d::Store& store, const MeetingNote& own, const MeetingRules& rules, MeetingProgress& progress)
      : store_(store), own_(own), rules_(rules), progress_(progress), twin_(own_) {}

 protected:
  MeetingNote note_at(const std::string& key) { return note_in(store_.get_to_str(key)); }
  void write_note(const std::string& leader, const MeetingNote& note) {
    store_.set(note_key(leader, store_.add(count_key(leader), 1)), text_of(note));
  }
  MeetingNote with_twin(const MeetingNote& other) const {
    MeetingNote note = own_;
    note.twin = other.place.process.number;
    return note;
  }
  std::string replaced_text() const {
    return incomplete_text(rules_.deadline, say("rank ", own_.rank,
                                                " was started twice: another process, which came "
                                                "later, has taken its place"));
  }

  c10d::Store& store_;
  const MeetingNote own_;
  const MeetingRules rules_;
  MeetingProgress& progress_;
  Twin twin_;
};

class Leader : public Participant {
 public:
  using Participant::Participant;

  MeetingList meet() {
    if (rules_.ranks_are_fixed && store_.check({leader_key})) former_ = note_at(leader_key);
    store_.set(leader_key, text_of(own_));
    list_.notes = {own_};
    update();
    for (LookPauses between_looks;; between_looks.pause()) {
      look_for_twin();
      if (read_notes()) update();
      end_if_different();
      if (list_.state == MeetingList::State::complete && silent().empty()) {
        list_.state = MeetingList::State::connecting;
        publish();
        return list_;
      }
      if (progress_.is_over) end_incomplete();
    }
  }

 private:
  void look_for_twin() {
    const MeetingNote now = note_at(leader_key);
    is_replaced_ = now.id != own_.id;
    const MeetingNote* other = is_replaced_ ? &now : former_ ? &*former_ : nullptr;
    if (!other || !twin_.lives_on(*other)) return;
    const MeetingNote report = with_twin(*other);
    if (is_replaced_) write_note(now.id, report);
    end(MeetingList::State::misuse, twice_text(report));
  }

  /// Reads the notes of those who have registered since the last call. Returns whether the list has changed.
  bool read_notes() {
    for (const std::int64_t count = store_.add(count_key(own_.id), 0); known_ < count;) unread_.push_back(++known_);
    bool any = false;
    // A process may have ended between taking its number and writing its note.
    std::erase_if(unread_, [&](std::int64_t number) {
      if (!store_.check({note_key(own_.id, number)})) return false;
      MeetingNote note = note_at(note_key(own_.id, number));
      if (note.twin != 0) end(MeetingList::State::misuse, twice_text(note));
      auto& newest = notes_[note.rank];
      if (note.rank != 0 && newest.first < number) {
        newest = {number, std::move(note)};
        any = true;
      }
      return true;
    });
    return any;
  }

  void update() {
    list_.notes = {own_};
    for (const auto& [rank, newest] : notes_)
      if (rank != 0) list_.notes.push_back(newest.second);
    if (difference_in(list_, own_).empty())
      differs_until_.reset();
    else if (!differs_until_)
      differs_until_.emplace(time_to_come);
    bool is_complete = !differs_until_;
    for (int rank = 0; rank < own_.size; ++rank) is_complete = is_complete && list_.of(rank);
    list_.state = is_complete ? MeetingList::State::complete : MeetingList::State::gathering;
    list_.job = say(own_.id, ".", ++updates_);
    publish();
  }

  void publish() {
    progress_.keep(list_);
    store_.set(list_key(own_.id), text_of(list_));
  }

  void end_if_different() {
    if (!differs_until_) return;
    int most = 0;
    for (const MeetingNote& note : list_.notes) most = std::max(most, note.size);
    if (list_.notes.size() == static_cast<std::size_t>(most) || differs_until_->is_over())
      end(MeetingList::State::differing, "");
  }

  /// The ranks that have not confirmed the complete list.
  std::vector<int> silent() {
    std::vector<std::string> keys;
    std::vector<int> ranks;
    for (int rank = 1; rank < own_.size; ++rank) keys.push_back(confirm_key(list_.job, rank));
    if (keys.empty() || store_.check(keys)) return {};
    for (int rank = 1; rank < own_.size; ++rank)
      if (!store_.check({confirm_key(list_.job, rank)})) ranks.push_back(rank);
    return ranks;
  }

  [[noreturn]] void end_incomplete() {
    if (is_replaced_) end(MeetingList::State::misuse, replaced_text());
    const auto missing =
        missing_in(list_, own_, list_.state == MeetingList::State::complete ? silent() : std::vector<int>());
    end(missing.is_misuse ? MeetingList::State::misuse : MeetingList::State::failure,
        incomplete_text(rules_.deadline, missing.text));
  }

  [[noreturn]] void end(MeetingList::State state, const std::string& why) {
    list_.state = state;
    list_.why = why;
    try {
      publish();
      const auto others = static_cast<std::int64_t>(list_.notes.size()) - 1;
      for (StartDeadline left(time_to_read); store_.add(readers_key(own_.id), 0) < others && !left.is_over();)
        std::this_thread::sleep_for(shortest_pause);
    } catch (const std::exception&) {
      // The store has ended. This process knows what to say.
    }
    throw_end(list_, own_);
  }

  std::optional<MeetingNote> former_;                          // of rank 0 in a former start
  bool is_replaced_ = false;                                   // by another rank 0
  std::int64_t known_ = 0;                                     // how many have registered
  std::vector<std::int64_t> unread_;                           // numbers of those who have not written their note
  std::map<int, std::pair<std::int64_t, MeetingNote>> notes_;  // by rank: the newest one and its number
  MeetingList list_;
  int updates_ = 0;
  std::optional<StartDeadline> differs_until_;
};

class Member : public Participant {
 public:
  using Participant::Participant;

  MeetingList meet() {
    for (LookPauses between_looks;; between_looks.pause()) {
      if (progress_.is_over) end_incomplete();
      if (store_.check({leader_key})) {
        register_at(note_at(leader_key));
        if (store_.check({list_key(leader_->id)})) {
          list_ = list_in(store_.get_to_str(list_key(leader_->id)));
          if (!list_.contains(own_.id))
            look_for_twin();
          else if (follow())
            return list_;
        }
      }
    }
  }

 private:
  void register_at(MeetingNote leader) {
    if (leader_ && leader_->id == leader.id) return;
    write_note(leader.id, own_);
    leader_ = std::move(leader);
    list_ = {};
    was_listed_ = false;
    progress_.keep(list_);
    const std::lock_guard lock(progress_.mutex);
    progress_.leader = leader_;
  }

  /// Does what the list of this process says. Returns whether all have confirmed it.
  bool follow() {
    was_listed_ = true;
    progress_.keep(list_);
    if (list_.is_end()) {
      store_.add(readers_key(leader_->id), 1);
      throw_end(list_, own_);
    }
    if (list_.state == MeetingList::State::complete && std::exchange(confirmed_, list_.job) != list_.job)
      store_.set(confirm_key(list_.job, own_.rank), std::string("yes"));
    return list_.state == MeetingList::State::connecting;
  }

  /// Whether this rank 0 has taken another process for this one. (A list that never had this process may be of a rank 0
  /// that has ended.)
  bool is_replaced() const { return was_listed_ && !list_.contains(own_.id); }

  /// Another process has this one's rank in the list: a later one, or one of a list that was made before this process
  /// came, where the processes of a former start may still run.
  void look_for_twin() {
    const MeetingNote* other = list_.of(own_.rank);
    if (!other || (!rules_.ranks_are_fixed && !is_replaced()) || !twin_.lives_on(*other)) return;
    const MeetingNote report = with_twin(*other);
    write_note(leader_->id, report);
    throw ConfigError(twice_text(report));
  }

  [[noreturn]] void end_incomplete() {
    if (is_replaced()) throw ConfigError(replaced_text());
    MissingRanks missing{"rank 0 has not come", true};
    if (list_.contains(own_.id)) {
      store_.add(readers_key(leader_->id), 1);
      missing = missing_in(list_, own_);
      if (missing.text.empty()) missing.text = "all ranks have come, and one of them does not answer";
    }
    if (leader_ && !list_.contains(own_.id)) missing = {trouble_with_leader(*leader_, own_), false};
    const std::string text = incomplete_text(rules_.deadline, missing.text);
    if (missing.is_misuse) throw ConfigError(text);
    throw TransportError(text);
  }

  std::optional<MeetingNote> leader_;  // the rank 0 at which this process has registered
  MeetingList list_;                   // its newest one
  bool was_listed_ = false;            // by leader_
  std::string confirmed_;              // job id
};

}  // namespace

MeetingList meet_in(c10d::Store& store, const MeetingNote& own, const MeetingRules& rules, MeetingProgress& progress) {
  return own.rank == 0 ? Leader(store, own, rules, progress).meet() : Member(store, own, rules, progress).meet();
}

}  // namespace penstock
