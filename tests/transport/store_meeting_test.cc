// Starts of a job, one after the other, at one store that lives on. Threads take the place of the processes.
#include "penstock/transport/joining/store_meeting.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "penstock/base/error.h"
#include "tests/transport/child.h"

namespace penstock::store_meeting_test {
namespace {

using namespace joining;
using namespace std::chrono_literals;

using Error = std::pair<std::string, std::string>;

Error incomplete(const std::string& why) {
  return {"ConfigError", "the world is incomplete after 60 s (the start deadline): " + why};
}

const std::string start_all = " not joined: start all ranks, or set a longer start deadline";

/// A process's part in a meeting, in a thread of its own. It ends by itself, or by give_up().
class Part {
 public:
  Part(c10d::Store& store, const MeetingNote& note)
      : meeting_(std::async(std::launch::async, [this, &store, note] { return meet_in(store, note, 60s, is_over_); })) {
  }
  ~Part() { is_over_ = true; }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  Meeting meeting() { return meeting_.get(); }
  /// Its deadline passes.
  void give_up() { is_over_ = true; }
  bool is_waiting() const { return meeting_.wait_for(0s) != std::future_status::ready; }
  /// The class and the message of its error.
  Error error() {
    try {
      meeting_.get();
    } catch (const ConfigError& error) {
      return {"ConfigError", error.what()};
    } catch (const TransportError& error) {
      return {"TransportError", error.what()};
    }
    return {"none", ""};
  }

 private:
  std::atomic<bool> is_over_{false};
  std::future<Meeting> meeting_;
};

struct Store {
  c10::intrusive_ptr<c10d::HashStore> at = c10::make_intrusive<c10d::HashStore>();
  c10d::Store& store() const { return *at; }
  std::unique_ptr<Part> part(int rank, int size) { return std::make_unique<Part>(*at, own_note(rank, size)); }
  std::unique_ptr<Part> part(MeetingNote note, std::int64_t process) {
    note.place.process.number = process;
    return std::make_unique<Part>(*at, note);
  }
  /// The newest start, once rank 0 has written another one than `former`.
  std::string start_after(const std::string& former = "") const {
    while (!at->check({"start"}) || store().get_to_str("start") == former) std::this_thread::yield();
    return store().get_to_str("start");
  }
  /// Waits until `rank` has written its note there, and another one than `former`. Returns it.
  std::string note_of(const std::string& start, int rank, const std::string& former = "") const {
    const std::string key = say(start, "/rank ", rank);
    while (!at->check({key}) || store().get_to_str(key) == former) std::this_thread::yield();
    return store().get_to_str(key);
  }
  /// Waits until rank 0 has read the notes that are there now.
  void wait_for_look(const std::string& start) const {
    const auto looks = [&] { return store().add(start + "/looks", 0); };
    for (const std::int64_t now = looks(); looks() < now + 2;) std::this_thread::yield();
  }
};

void expect_one_meeting(const std::vector<Part*>& parts) {
  const Meeting first = parts.front()->meeting();
  EXPECT_EQ(first.places.size(), parts.size());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const Meeting other = parts[i]->meeting();
    EXPECT_EQ(other.start, first.start);
    EXPECT_EQ(other.places.size(), parts.size());
  }
}

TEST(StoreMeeting, each_start_at_one_store_is_another_one) {
  Store store;
  std::set<std::string> starts;
  for (const int size : {2, 3, 2, 1}) {
    std::vector<std::unique_ptr<Part>> parts;
    for (int rank = size; rank-- > 0;) parts.push_back(store.part(own_note(rank, size), 100 + rank));
    std::set<std::string> of_parts;
    for (auto& part : parts) {
      const Meeting meeting = part->meeting();
      of_parts.insert(meeting.start);
      ASSERT_EQ(meeting.places.size(), static_cast<std::size_t>(size));
      for (int rank = 0; rank < size; ++rank)
        EXPECT_EQ(meeting.places[static_cast<std::size_t>(rank)].process.number, 100 + rank);
    }
    EXPECT_EQ(of_parts.size(), 1U);
    EXPECT_TRUE(starts.insert(*of_parts.begin()).second) << "a start was repeated";
  }
}

TEST(StoreMeeting, a_rank_waits_for_the_new_rank_0) {
  Store store;
  auto former_0 = store.part(0, 2), former_1 = store.part(1, 2);
  expect_one_meeting({former_0.get(), former_1.get()});
  const std::string former = store.start_after();
  const std::string note = store.note_of(former, 1);
  auto member = store.part(1, 2);
  store.note_of(former, 1, note);
  EXPECT_TRUE(member->is_waiting()) << "it joins a start that is complete without it";
  auto leader = store.part(0, 2);
  expect_one_meeting({leader.get(), member.get()});
}

TEST(StoreMeeting, a_new_rank_0_takes_over_from_one_that_still_waits) {
  Store store;
  auto former = store.part(0, 3), member = store.part(1, 3);
  const std::string start = store.start_after();
  store.note_of(start, 1);
  auto leader = store.part(0, 3);
  store.note_of(store.start_after(start), 1);
  auto last = store.part(2, 3);
  expect_one_meeting({leader.get(), member.get(), last.get()});
  EXPECT_TRUE(former->is_waiting());
  former->give_up();
  EXPECT_EQ(former->error(), incomplete("rank 2 has" + start_all));
}

TEST(StoreMeeting, a_process_that_is_started_again_before_all_have_joined_takes_its_place) {
  Store store;
  auto leader = store.part(0, 3);
  const std::string start = store.start_after();
  auto first = store.part(own_note(1, 3), 7);
  const std::string note = store.note_of(start, 1);
  store.wait_for_look(start);
  auto second = store.part(own_note(1, 3), 8);
  store.note_of(start, 1, note);
  store.wait_for_look(start);
  auto last = store.part(2, 3);
  expect_one_meeting({leader.get(), second.get(), last.get()});
  EXPECT_TRUE(first->is_waiting());
  first->give_up();
  EXPECT_EQ(first->error(),
            incomplete("rank 1 was started twice, as process 7 and as process 8: start each process with "
                       "a rank of its own"));
}

TEST(StoreMeeting, all_that_have_joined_name_those_that_have_not) {
  Store store;
  auto leader = store.part(0, 4), member = store.part(2, 4);
  const std::string start = store.start_after();
  store.note_of(start, 2);
  store.wait_for_look(start);
  leader->give_up();
  EXPECT_EQ(leader->error(), incomplete("rank 1 and rank 3 have" + start_all));
  EXPECT_EQ(member->error(), incomplete("rank 1 and rank 3 have" + start_all));
  // The next start takes no notice.
  auto next = store.part(0, 1);
  EXPECT_EQ(next->meeting().places.size(), 1U);
}

TEST(StoreMeeting, a_rank_that_gives_up_first_names_the_same_ranks) {
  Store store;
  auto leader = store.part(0, 3), member = store.part(1, 3);
  const std::string start = store.start_after();
  store.note_of(start, 1);
  store.wait_for_look(start);
  member->give_up();
  EXPECT_EQ(member->error(), incomplete("rank 2 has" + start_all));
}

TEST(StoreMeeting, a_rank_without_rank_0_names_it) {
  Store store;
  auto alone = store.part(1, 2);
  alone->give_up();
  EXPECT_EQ(alone->error(), incomplete("rank 0 has" + start_all));
  auto leader = store.part(0, 2), member = store.part(1, 2);
  expect_one_meeting({leader.get(), member.get()});
  const std::string start = store.start_after();
  const std::string note = store.note_of(start, 1);
  auto other = store.part(1, 2);
  store.note_of(start, 1, note);
  other->give_up();
  EXPECT_EQ(other->error(), incomplete("rank 0 has" + start_all +
                                       "; if the job that has met in this store before still "
                                       "runs, rank 1 was started twice"));
}

/// Rank 0 where `member` has joined and does not go on, as seen at the deadline.
Error error_with_a_silent_rank(const MeetingNote& member) {
  Store store;
  auto leader = store.part(0, 2);
  const std::string start = store.start_after();
  const auto& [host, process] = member.place;
  store.store().set(start + "/rank 1",
                    say(member.build, "\n1 2 ", host, " ", process.numbered_by, " ", process.number, " silent\n"));
  while (!store.at->check({start + "/here 0"})) std::this_thread::yield();
  leader->give_up();
  return leader->error();
}

TEST(StoreMeeting, a_rank_that_has_joined_and_is_silent_is_named) {
  const std::string incomplete = "the world is incomplete after 60 s (the start deadline): rank 1";
  MeetingNote note = own_note(1, 2);
  EXPECT_EQ(error_with_a_silent_rank(note),
            Error("TransportError", incomplete + " has joined, and does not respond any more"));
  test::Child child;
  note.place.process = child.name();
  child.end();
  EXPECT_EQ(error_with_a_silent_rank(note),
            Error("TransportError", say(incomplete, " (process ", note.place.process.number, ") has ended")));
}

TEST(StoreMeeting, builds_are_compared_before_sizes) {
  Store store;
  MeetingNote other = own_note(1, 3);
  other.build = "penstock 9";
  auto leader = store.part(0, 2);
  Part first(*store.at, other);
  auto second = store.part(2, 3);
  const Error expected{"ConfigError", say("rank 1 runs penstock 9, and rank 0 runs ", own_note(0, 2).build,
                                          ": install the same build on all hosts")};
  EXPECT_EQ(leader->error(), expected);
  EXPECT_EQ(first.error(), expected);
  EXPECT_EQ(second->error(), expected);
}

TEST(StoreMeeting, sizes_are_compared) {
  Store store;
  auto leader = store.part(0, 2), first = store.part(1, 4), other = store.part(3, 4);
  const std::string start = store.start_after();
  for (const int rank : {1, 3}) store.note_of(start, rank);
  store.wait_for_look(start);
  leader->give_up();  // rank 2 does not exist
  for (auto* part : {leader.get(), first.get(), other.get()})
    EXPECT_EQ(part->error(), Error("ConfigError",
                                   "rank 1 was started with WORLD_SIZE=4, rank 0 with 2: start all ranks with the same "
                                   "number"));
}

}  // namespace
}  // namespace penstock::store_meeting_test
