#include "penstock/transport/gloo_rendezvous.h"

#include <cstdlib>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "penstock/base/error.h"
#include "penstock/transport/gloo_network.h"
#include "penstock/transport/launch_environment.h"
#include "penstock/transport/peer_processes.h"
#include "penstock/transport/quiet_c10d.h"
#include "penstock/transport/start_deadline.h"
#include "penstock/transport/store_address.h"
#include "penstock/transport/store_meeting.h"

namespace penstock {
namespace {

const char* variable(const char* name) { return std::getenv(name); }

/// How long a rank whose process has ended may have left a reason on its way to this one.
constexpr std::chrono::seconds time_of_reason{1};

/// How often the name of the store's host is looked up, and who listens there, as long as the store is not reached.
constexpr std::chrono::seconds between_looks_at_store{1};
constexpr int looks_for_a_name = 4;

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

struct GlooRendezvous::Job {
  ProcessRank own;
  std::optional<Rendezvous> meeting;  // where the launcher's processes meet; none: the program has given the store
  c10::intrusive_ptr<c10d::Store> store;
  std::string address;  // of this host, as the store's host sees it

  static std::shared_ptr<Job> of_launcher() {
    const LaunchedAs launched = launched_as(AskedTransport::gloo);
    return std::make_shared<Job>(Job{{launched.rank, launched.size}, rendezvous(variable), {}, {}});
  }

  void resolve(MeetingProgress& progress) const;
  void join(MeetingProgress& progress);
  GlooWorld meet(const MeetingNote& note, std::chrono::milliseconds deadline, MeetingProgress& progress);
  bool opens_store() const { return !meeting->is_open && own.rank == 0; }
  std::string store_text() const {
    if (!meeting) return "the store that the program has given";
    return say("the store at ", meeting->address, ":", meeting->port, " (MASTER_ADDR and MASTER_PORT), ",
               opens_store()      ? "where all processes meet"
               : meeting->is_open ? "which the launcher holds"
                                  : "which rank 0 opens");
  }
  [[noreturn]] void fail_unreached(std::chrono::milliseconds deadline, const std::string& unresolved) const;
  [[noreturn]] void fail_incomplete(std::chrono::milliseconds deadline, const MeetingNote& note,
                                    MeetingProgress& progress) const;
};

GlooRendezvous& GlooRendezvous::instance() {
  static GlooRendezvous* const rendezvous = new GlooRendezvous;
  return *rendezvous;
}

GlooRendezvous::GlooRendezvous(const c10::intrusive_ptr<c10d::Store>& store, ProcessRank own) {
  require<ConfigError>(store.defined(), "there is no store: give one that all ", own.size, " processes share");
  require<ConfigError>(own.rank >= 0 && own.rank < own.size, "rank ", own.rank, " of ", own.size,
                       " does not exist: ranks count from 0");
  job_ = std::make_shared<Job>(Job{own, {}, c10::make_intrusive<c10d::PrefixStore>("penstock", store), {}});
  // Of other stores the host is unknown: then the address is that of this host's name.
  auto lowest = store;
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) lowest = prefixed->getUnderlyingNonPrefixStore();
  if (const auto* tcp = dynamic_cast<const c10d::TCPStore*>(lowest.get()))
    job_->address = address_towards(Rendezvous{.address = tcp->getHost(), .port = tcp->getPort()}, variable);
}

int GlooRendezvous::size() const { return job_->own.size; }

/// Waits until the name of the store's host has an address, or until nobody waits for this thread any more.
void GlooRendezvous::Job::resolve(MeetingProgress& progress) const {
  for (int looks = 1;; ++looks, std::this_thread::sleep_for(between_looks_at_store)) {
    const Unresolved unresolved = why_unresolved(*meeting, variable);
    {
      const std::lock_guard lock(progress.mutex);
      progress.unresolved = unresolved.why;
    }
    if (unresolved.why.empty()) return;
    // A container may get its name a moment after this one has started.
    require<ConfigError>(!unresolved.is_final || looks < looks_for_a_name, "MASTER_ADDR=", meeting->address,
                         ": this host finds no address of that name (", unresolved.why,
                         "); set it to the name or address of the host of rank 0");
    require<TransportError>(!progress.is_over, "there is no address of ", meeting->address);
  }
}

void GlooRendezvous::Job::join(MeetingProgress& progress) {
  resolve(progress);
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(meeting->port);
  options.isServer = opens_store();
  options.waitWorkers = false;  // meet_in() waits, and knows who is missing
  options.timeout = gloo_time_limit;
  try {
    if (opens_store() && is_loopback(meeting->address)) options.masterListenFd = loopback_socket(*meeting);
    store = c10::make_intrusive<c10d::PrefixStore>("penstock",
                                                   c10::make_intrusive<c10d::TCPStore>(meeting->address, options));
  } catch (const std::exception& error) {
    if (opens_store())
      throw TransportError(say("rank ", own.rank, " cannot open ", store_text(), ": ", first_line(error)));
    // Where nobody listens, or a connection breaks, c10d tries again, without a limit.
    throw ConfigError(say("rank ", own.rank, " does not reach ", store_text(), ": ", first_line(error)));
  }
  address = address_towards(*meeting, variable);
}

/// The part of open() that may wait without a limit.
GlooWorld GlooRendezvous::Job::meet(const MeetingNote& note, std::chrono::milliseconds deadline,
                                    MeetingProgress& progress) {
  if (!store) join(progress);
  // Nobody waits for this thread any more: it must not be taken for a rank that has come.
  require<TransportError>(!progress.is_over, "the start has been given up");
  {
    const std::lock_guard lock(progress.mutex);
    progress.has_store = true;
  }
  MeetingList list;
  try {
    list = meet_in(*store, note, {deadline, meeting.has_value()}, progress);
  } catch (const Misuse&) {
    throw;
  } catch (const Failure&) {
    throw;
  } catch (const std::exception& error) {
    throw TransportError(say("rank ", own.rank, " has lost ", store_text(), ": ", first_line(error)));
  }
  GlooMembership membership{WorldRank(own.rank), {}, address};
  for (const MeetingNote& each : list.notes) membership.places.push_back(each.place);
  auto of_world = c10::make_intrusive<c10d::PrefixStore>(list.job, store);
  GlooConnections connections = connect_by_gloo(of_world, membership);
  return {make_gloo_network(std::move(connections), std::move(membership)), std::move(of_world)};
}

void GlooRendezvous::Job::fail_unreached(std::chrono::milliseconds deadline, const std::string& unresolved) const {
  std::string why = say("rank ", own.rank, " does not reach ", store_text());
  if (!unresolved.empty())
    why += say("; the name has no address (", unresolved, ")");
  else if (listener_at(*meeting) != Listener::none)
    why += "; a program listens there, and does not answer as a store does";
  throw ConfigError(incomplete_text(deadline, why));
}

void GlooRendezvous::Job::fail_incomplete(std::chrono::milliseconds deadline, const MeetingNote& note,
                                          MeetingProgress& progress) const {
  const std::lock_guard lock(progress.mutex);
  if (progress.list.notes.empty() && progress.leader)
    throw TransportError(incomplete_text(deadline, trouble_with_leader(*progress.leader, note)));
  if (progress.list.notes.empty()) throw ConfigError(incomplete_text(deadline, "rank 0 has not come"));
  MissingRanks missing = missing_in(progress.list, note);
  if (missing.text.empty()) missing.text = "all ranks have come, and one of them cannot be connected with this one";
  if (missing.is_misuse) throw ConfigError(incomplete_text(deadline, missing.text));
  throw TransportError(incomplete_text(deadline, missing.text));
}

GlooWorld GlooRendezvous::open(std::chrono::milliseconds deadline) {
  require_network_interfaces(variable);
  const auto job = job_ ? job_ : Job::of_launcher();
  const auto progress = std::make_shared<MeetingProgress>();
  const MeetingNote note = own_note(job->own.rank, job->own.size);
  std::packaged_task<GlooWorld()> task([=] {
    const QuietC10d quiet;
    return job->meet(note, deadline, *progress);
  });
  auto opened = task.get_future();
  // In a thread of its own, because c10d and Gloo wait without looking at the deadline.
  std::thread(std::move(task)).detach();
  StartDeadline left(deadline);
  std::optional<StartDeadline> left_to_end, left_to_reason;
  StartDeadline left_to_look(between_looks_at_store);
  int strangers = 0;                   // how often in a row another program has answered in the place of the store
  std::optional<PeerProcesses> peers;  // while they are connected
  while (opened.wait_for(StartDeadline::look_every) != std::future_status::ready) {
    bool has_store = false, has_met = false;
    std::optional<std::string> unresolved;
    {
      const std::lock_guard lock(progress->mutex);
      unresolved = progress->unresolved;
      has_store = progress->has_store;
      has_met = progress->has_met;
      if (has_met && !peers) {
        peers.emplace();
        for (const MeetingNote& each : progress->list.notes)
          if (each.id != note.id && are_neighbours(each, note)) peers->watch(WorldRank(each.rank), each.place.process);
      }
    }
    // Gloo waits for a process that has ended before it was connected.
    if (const auto ended = peers ? peers->ended() : std::nullopt) {
      if (!left_to_reason) left_to_reason.emplace(time_of_reason);
      if (left_to_reason->is_over())
        throw TransportError(say("rank ", ended->rank.value(), " has died: its process ", ended->process,
                                 " has ended before all ranks were connected"));
    }
    // c10d tries again and again where another program answers.
    if (!has_store && unresolved == "" && !job->opens_store() && left_to_look.is_over()) {
      strangers = listener_at(*job->meeting) == Listener::other ? strangers + 1 : 0;
      require<ConfigError>(strangers < 2, "rank ", note.rank, " does not reach ", job->store_text(),
                           ": another program answers there; take a free port of rank 0's host for all ranks");
      left_to_look = StartDeadline(between_looks_at_store);
    }
    if (!left.is_over()) continue;
    progress->is_over = true;
    if (!has_store) job->fail_unreached(deadline, unresolved.value_or("no server of names answers"));
    if (has_met) job->fail_incomplete(deadline, note, *progress);
    // All ranks that meet say the same, unless the store hangs.
    if (!left_to_end) left_to_end.emplace(2 * time_to_read);
    if (left_to_end->is_over()) job->fail_incomplete(deadline, note, *progress);
  }
  GlooWorld world = opened.get();
  job_ = job;
  return world;
}

}  // namespace penstock
