// Starts of a job, one after the other, at one store that lives on. Threads take the place of the processes.
#include "penstock/transport/store_meeting.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
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

using namespace std::chrono_literals;
using test::Child;

/// A process's part in a meeting, in a thread of its own. It ends by itself, or by give_up().
class Part {
 public:
  Part(c10d::Store& store, MeetingNote note, bool ranks_are_fixed = true) : note_(std::move(note)) {
    list_ = std::async(std::launch::async, [this, &store, ranks_are_fixed] {
      return meet_in(store, note_, {.deadline = 60s, .ranks_are_fixed = ranks_are_fixed}, progress_);
    });
  }
  ~Part() { progress_.is_over = true; }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  const MeetingNote& note() const { return note_; }
  MeetingList list() { return list_.get(); }
  void give_up() { progress_.is_over = true; }
  bool is_waiting() const { return list_.wait_for(0s) != std::future_status::ready; }
  /// The class and the message of its error.
  std::pair<std::string, std::string> error() {
    try {
      list_.get();
    } catch (const ConfigError& error) {
      return {"ConfigError", error.what()};
    } catch (const TransportError& error) {
      return {"TransportError", error.what()};
    }
    return {"none", ""};
  }
  /// Waits until the newest list of this part fulfils `condition`.
  template <class Condition>
  void wait_for(const Condition& condition) {
    for (bool is_met = false; !is_met; std::this_thread::yield()) {
      const std::lock_guard lock(progress_.mutex);
      is_met = condition(progress_.list);
    }
  }
  void wait_for_ranks(std::size_t count) {
    wait_for([=](const MeetingList& list) { return list.notes.size() == count; });
  }

 private:
  const MeetingNote note_;
  MeetingProgress progress_;
  std::future<MeetingList> list_;
};

using Error = std::pair<std::string, std::string>;

struct Store {
  c10::intrusive_ptr<c10d::HashStore> at = c10::make_intrusive<c10d::HashStore>();
  std::unique_ptr<Part> part(int rank, int size) { return std::make_unique<Part>(*at, own_note(rank, size)); }
  /// What a process leaves that registers at `leader` and ends, or is stopped, at once.
  void register_at(const Part& leader, const MeetingNote& note) {
    const auto number = at->add(leader.note().id + "/registered", 1);
    static_cast<c10d::Store&>(*at).set(say(leader.note().id, "/note ", number), text_of(note));
  }
};

void expect_ids(const MeetingList& list, const std::vector<const Part*>& parts) {
  ASSERT_EQ(list.notes.size(), parts.size());
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    EXPECT_EQ(list.notes[rank].id, parts[rank]->note().id) << rank;
}

TEST(StoreMeeting, each_start_at_one_store_has_a_list_of_its_own) {
  Store store;
  std::vector<std::string> jobs;
  for (const int size : {2, 3, 2, 1}) {
    std::vector<std::unique_ptr<Part>> parts;
    for (int rank = size; rank-- > 0;) parts.push_back(store.part(rank, size));
    for (auto& part : parts) {
      const MeetingList list = part->list();
      ASSERT_EQ(list.notes.size(), static_cast<std::size_t>(size));
      for (auto& other : parts) EXPECT_TRUE(list.contains(other->note().id));
      if (part == parts.front()) jobs.push_back(list.job);
      EXPECT_EQ(list.job, jobs.back());
    }
    EXPECT_EQ(std::count(jobs.begin(), jobs.end(), jobs.back()), 1);
  }
}

TEST(StoreMeeting, a_member_waits_for_the_new_rank_0) {
  Store store;
  auto former_0 = store.part(0, 2), former_1 = store.part(1, 2);
  former_0->list();
  former_1->list();
  auto member = store.part(1, 2);
  while (store.at->add(former_0->note().id + "/registered", 0) < 2) std::this_thread::yield();
  EXPECT_TRUE(member->is_waiting()) << "it takes a list that was made before it came";
  auto leader = store.part(0, 2);
  expect_ids(leader->list(), {leader.get(), member.get()});
  expect_ids(member->list(), {leader.get(), member.get()});
}

TEST(StoreMeeting, a_new_rank_0_takes_over_from_one_that_still_waits) {
  Store store;
  auto former = store.part(0, 3), member = store.part(1, 3);
  member->wait_for_ranks(2);
  auto leader = store.part(0, 3);
  leader->wait_for_ranks(2);
  auto last = store.part(2, 3);
  for (auto* part : {leader.get(), member.get(), last.get()})
    expect_ids(part->list(), {leader.get(), member.get(), last.get()});
  EXPECT_TRUE(former->is_waiting());
  former->give_up();
  EXPECT_EQ(former->error(), Error("ConfigError",
                                   "the world is incomplete after 60 s (the start deadline, at the "
                                   "rendezvous): rank 0 was started twice: another process, which came "
                                   "later, has taken its place"));
}

TEST(StoreMeeting, a_process_that_does_not_confirm_is_replaced) {
  Store store;
  auto leader = store.part(0, 2);
  leader->wait_for_ranks(1);
  store.register_at(*leader, own_note(1, 2));
  leader->wait_for([](const MeetingList& list) { return list.state == MeetingList::State::complete; });
  EXPECT_TRUE(leader->is_waiting());
  auto member = store.part(1, 2);
  expect_ids(leader->list(), {leader.get(), member.get()});
  expect_ids(member->list(), {leader.get(), member.get()});
}

TEST(StoreMeeting, all_that_have_come_name_those_that_have_not) {
  Store store;
  auto leader = store.part(0, 4), member = store.part(2, 4);
  member->wait_for_ranks(2);
  leader->give_up();
  const Error expected{"ConfigError",
                       "the world is incomplete after 60 s (the start deadline, at the rendezvous): rank 1 "
                       "has not come; rank 3 has not come"};
  EXPECT_EQ(leader->error(), expected);
  EXPECT_EQ(member->error(), expected);
  // The next start takes no notice.
  auto next_0 = store.part(0, 1);
  EXPECT_EQ(next_0->list().notes.size(), 1U);
  auto alone = store.part(1, 2);
  alone->give_up();
  EXPECT_EQ(alone->error().second,
            "the world is incomplete after 60 s (the start deadline, at the rendezvous): rank 0 has not come");
}

TEST(StoreMeeting, a_member_that_gives_up_first_names_the_same_ranks) {
  Store store;
  auto leader = store.part(0, 3), member = store.part(1, 3);
  member->wait_for_ranks(2);
  member->give_up();
  EXPECT_EQ(member->error(), Error("ConfigError",
                                   "the world is incomplete after 60 s (the start deadline, at the "
                                   "rendezvous): rank 2 has not come"));
}

TEST(StoreMeeting, a_rank_that_has_come_and_is_silent_is_no_misuse) {
  Store store;
  auto leader = store.part(0, 2);
  leader->wait_for_ranks(1);
  store.register_at(*leader, own_note(1, 2));
  leader->wait_for_ranks(2);
  leader->give_up();
  EXPECT_EQ(leader->error(), Error("TransportError",
                                   "the world is incomplete after 60 s (the start deadline, at the "
                                   "rendezvous): rank 1 has come, and does not answer any more"));
}

TEST(StoreMeeting, builds_are_compared_before_sizes) {
  Store store;
  MeetingNote other = own_note(1, 3);
  other.build = "penstock 9";
  auto leader = store.part(0, 2);
  Part member(*store.at, other);
  EXPECT_EQ(leader->error(), Error("ConfigError", say("rank 0 runs ", leader->note().build,
                                                      ", and rank 1 runs penstock 9: "
                                                      "install the same build on all hosts")));
  EXPECT_EQ(member.error(), Error("ConfigError", say("rank 1 runs penstock 9, and rank 0 runs ", leader->note().build,
                                                     ": install the same build on all hosts")));
}

TEST(StoreMeeting, sizes_are_compared) {
  Store store;
  auto leader = store.part(0, 2), first = store.part(1, 4), second = store.part(3, 4);
  const std::string with = " was started with WORLD_SIZE=4, rank 0 with 2: start all ranks with the same number";
  EXPECT_EQ(leader->error(), Error("ConfigError", "rank 1" + with));
  EXPECT_EQ(first->error(), Error("ConfigError", "rank 1" + with));
  EXPECT_EQ(second->error(), Error("ConfigError", "rank 3" + with));
}

/// What `child` writes as a rank.
MeetingNote note_of(const Child& child, int rank, int size) {
  MeetingNote note = own_note(rank, size);
  note.place.process = child.name();
  note.started = start_of_process(note.place.process.number);
  return note;
}

TEST(StoreMeeting, another_living_process_of_the_same_rank_is_named_on_all_ranks) {
  Store store;
  Child child;
  const Error expected{"ConfigError", twice_text([&] {
                         MeetingNote note = own_note(1, 4);
                         note.twin = note_of(child, 1, 4).place.process.number;
                         return note;
                       }())};
  EXPECT_NE(expected.second.find("rank 1 was started twice, as process "), std::string::npos);
  auto leader = store.part(0, 4), first = store.part(1, 4), other = store.part(2, 4);
  other->wait_for_ranks(3);
  store.register_at(*leader, note_of(child, 1, 4));
  for (auto* part : {first.get(), leader.get(), other.get()}) EXPECT_EQ(part->error(), expected);
}

/// What a start leaves of which all have met: its rank 1 is `note`.
void leave_start(c10d::Store& store, const MeetingNote& note) {
  const MeetingNote leader = own_note(0, 2);
  store.set("rank 0", text_of(leader));
  store.set(leader.id + "/list", text_of(MeetingList{MeetingList::State::connecting, "job", "", {leader, note}}));
}

TEST(StoreMeeting, a_process_that_has_met_and_lives_on_is_named) {
  Store store;
  Child child;
  leave_start(*store.at, note_of(child, 1, 2));
  auto member = store.part(1, 2);
  const auto [kind, message] = member->error();
  EXPECT_EQ(kind, "ConfigError");
  EXPECT_NE(message.find("rank 1 was started twice, as process "), std::string::npos) << message;
}

TEST(StoreMeeting, a_process_of_a_former_start_that_is_ending_is_no_twin) {
  Store store;
  Child child;
  const MeetingNote former = note_of(child, 1, 2);
  leave_start(*store.at, former);
  const std::string registered = note_in(static_cast<c10d::Store&>(*store.at).get_to_str("rank 0")).id + "/registered";
  auto member = store.part(1, 2);
  while (store.at->add(registered, 0) < 1) std::this_thread::yield();
  child.end();
  auto leader = store.part(0, 2);
  expect_ids(member->list(), {leader.get(), member.get()});
  expect_ids(leader->list(), {leader.get(), member.get()});
}

// A program may give a process another rank in its next world.
TEST(StoreMeeting, the_ranks_of_a_given_store_may_change) {
  Store store;
  Child child;
  leave_start(*store.at, note_of(child, 1, 2));
  Part member(*store.at, own_note(1, 2), false);
  Part leader(*store.at, own_note(0, 2), false);
  expect_ids(member.list(), {&leader, &member});
  expect_ids(leader.list(), {&leader, &member});
}

TEST(MeetingNotes, of_a_list_are_read_as_they_were_written) {
  MeetingList list{MeetingList::State::failure, "job.1", "rank 1 has ended", {own_note(0, 2), own_note(1, 2)}};
  list.notes[1].twin = 7;
  const MeetingList read = list_in(text_of(list));
  EXPECT_EQ(text_of(read), text_of(list));
  EXPECT_EQ(read.notes.at(1).build, list.notes[1].build);
  EXPECT_EQ(read.notes.at(1).started, start_of_process(::getpid()));
  EXPECT_NE(read.notes.at(0).id, read.notes.at(1).id);
}

TEST(MeetingNotes, only_a_process_of_this_host_is_known_to_live) {
  Child child;
  const MeetingNote own = own_note(0, 2);
  const MeetingNote other = note_of(child, 0, 2);
  EXPECT_TRUE(is_another_living_process(own, other));
  EXPECT_FALSE(is_another_living_process(own, own_note(0, 2))) << "this process";
  MeetingNote elsewhere = other;
  ++elsewhere.place.host;
  EXPECT_FALSE(is_another_living_process(own, elsewhere));
  MeetingNote of_former_process = other;
  --of_former_process.started;
  EXPECT_FALSE(is_another_living_process(own, of_former_process)) << "its number is used again";
  child.end();
  EXPECT_FALSE(is_another_living_process(own, other));
}

}  // namespace
}  // namespace penstock::store_meeting_test
