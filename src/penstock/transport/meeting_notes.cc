#include "penstock/transport/meeting_notes.h"

#include <algorithm>
#include <sstream>

#include "penstock/base/error.h"
#include "penstock/base/random_digits.h"
#include "penstock/transport/build_identity.h"
#include "penstock/transport/host_id.h"

namespace penstock {
namespace {

MeetingNote read_note(std::istream& lines) {
  MeetingNote note;
  std::string numbers;
  std::getline(lines, note.build);
  std::getline(lines, numbers);
  std::istringstream(numbers) >> note.rank >> note.size >> note.id >> note.place.host >>
      note.place.process.numbered_by >> note.place.process.number >> note.started >> note.twin;
  return note;
}

bool has_ended(std::int64_t process, std::uint64_t started) {
  const auto state = state_of_process(process);
  return !state || *state == 'Z' || *state == 'X' || start_of_process(process) != started;
}

std::string size_text(const MeetingNote& note, const MeetingNote& of_rank_0) {
  return say("rank ", note.rank, " was started with WORLD_SIZE=", note.size, ", rank 0 with ", of_rank_0.size,
             ": start all ranks with the same number");
}

/// Empty where nothing is wrong with a rank that has come.
std::string trouble_with(const MeetingNote& note, const MeetingNote& own, bool is_silent) {
  const std::int64_t process = note.place.process.number;
  if (are_neighbours(note, own)) {
    if (is_stopped(process)) return say("rank ", note.rank, " (process ", process, ") is stopped");
    if (has_ended(process, note.started)) return say("rank ", note.rank, " (process ", process, ") has ended");
  }
  return is_silent ? say("rank ", note.rank, " has come, and does not answer any more") : std::string();
}

}  // namespace

MeetingNote own_note(int rank, int size) {
  const ProcessName process = own_process_name();
  return {build_identity(), rank, size, random_digits(), {host_id(), process}, start_of_process(process.number), 0};
}

std::string text_of(const MeetingNote& note) {
  return say(note.build, "\n", note.rank, " ", note.size, " ", note.id, " ", note.place.host, " ",
             note.place.process.numbered_by, " ", note.place.process.number, " ", note.started, " ", note.twin, "\n");
}

MeetingNote note_in(const std::string& text) {
  std::istringstream lines(text);
  return read_note(lines);
}

const MeetingNote* MeetingList::of(int rank) const {
  const auto found = std::find_if(notes.begin(), notes.end(), [&](const auto& note) { return note.rank == rank; });
  return found == notes.end() ? nullptr : &*found;
}

bool MeetingList::contains(const std::string& id) const {
  return std::any_of(notes.begin(), notes.end(), [&](const auto& note) { return note.id == id; });
}

std::string text_of(const MeetingList& list) {
  std::string text = say(static_cast<int>(list.state), "\n", list.job, "\n", list.why, "\n");
  for (const MeetingNote& note : list.notes) text += text_of(note);
  return text;
}

MeetingList list_in(const std::string& text) {
  std::istringstream lines(text);
  MeetingList list;
  std::string state;
  std::getline(lines, state);
  list.state = static_cast<MeetingList::State>(std::atoi(state.c_str()));
  std::getline(lines, list.job);
  std::getline(lines, list.why);
  while (lines.peek() != std::istringstream::traits_type::eof()) list.notes.push_back(read_note(lines));
  return list;
}

bool are_neighbours(const MeetingNote& one, const MeetingNote& other) {
  const std::uint64_t numbered_by = one.place.process.numbered_by;
  // Initial PID namespaces have the same number on every host.
  return one.place.host == other.place.host && numbered_by != 0 && numbered_by == other.place.process.numbered_by;
}

bool is_another_living_process(const MeetingNote& own, const MeetingNote& other) {
  return are_neighbours(own, other) && own.place.process.number != other.place.process.number &&
         !has_ended(other.place.process.number, other.started);
}

std::string difference_in(const MeetingList& list, const MeetingNote& own) {
  for (const MeetingNote& note : list.notes)
    if (note.build != own.build)
      return say("rank ", own.rank, " runs ", own.build, ", and rank ", note.rank, " runs ", note.build,
                 ": install the same build on all hosts");
  const MeetingNote* first = list.of(0);
  if (!first) return "";
  if (own.size != first->size) return size_text(own, *first);
  for (const MeetingNote& note : list.notes)
    if (note.size != first->size) return size_text(note, *first);
  return "";
}

MissingRanks missing_in(const MeetingList& list, const MeetingNote& own, const std::vector<int>& silent) {
  MissingRanks missing;
  for (int rank = 0; rank < own.size; ++rank) {
    const MeetingNote* note = list.of(rank);
    const bool is_silent = std::find(silent.begin(), silent.end(), rank) != silent.end();
    const std::string trouble = note ? trouble_with(*note, own, is_silent) : say("rank ", rank, " has not come");
    if (trouble.empty()) continue;
    missing.text += (missing.text.empty() ? "" : "; ") + trouble;
    missing.is_misuse |= !note;
  }
  return missing;
}

std::string trouble_with_leader(const MeetingNote& leader, const MeetingNote& own) {
  return trouble_with(leader, own, /*is_silent=*/true);
}

std::string incomplete_text(std::chrono::milliseconds deadline, const std::string& why) {
  return say("the world is incomplete after ", static_cast<double>(deadline.count()) * 1e-3,
             " s (the start deadline, at the rendezvous): ", why);
}

std::string twice_text(const MeetingNote& note) {
  return say("rank ", note.rank, " was started twice, as process ", std::min(note.place.process.number, note.twin),
             " and as process ", std::max(note.place.process.number, note.twin),
             ": start each process with a rank of its own");
}

void throw_end(const MeetingList& list, const MeetingNote& own) {
  if (list.state == MeetingList::State::differing) throw ConfigError(difference_in(list, own));
  if (list.state == MeetingList::State::misuse) throw ConfigError(list.why);
  throw TransportError(list.why);
}

}  // namespace penstock
