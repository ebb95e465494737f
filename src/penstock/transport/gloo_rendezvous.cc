#include "penstock/transport/gloo_rendezvous.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <future>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "penstock/base/error.h"
#include "penstock/transport/build_identity.h"
#include "penstock/transport/gloo_network.h"
#include "penstock/transport/host_id.h"
#include "penstock/transport/launch_environment.h"
#include "penstock/transport/start_deadline.h"

namespace penstock {
namespace {

const char* variable(const char* name) { return std::getenv(name); }

/// The address from which this host reaches `store`: the one at which the other hosts reach this one. A host's own name
/// often means 127.0.1.1, which no other host reaches. Empty where there is no way to the store, and where the user has
/// named an interface.
std::string address_towards(const Rendezvous& store) {
  if (variable("GLOO_SOCKET_IFNAME")) return "";
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;  // connecting sends nothing
  if (::getaddrinfo(store.address.c_str(), std::to_string(store.port).c_str(), &hints, &found) != 0) return "";
  std::string address;
  for (const addrinfo* each = found; each && address.empty(); each = each->ai_next) {
    const int socket = ::socket(each->ai_family, each->ai_socktype, each->ai_protocol);
    if (socket < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    char text[NI_MAXHOST] = "";
    if (::connect(socket, each->ai_addr, each->ai_addrlen) == 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0)
      address = text;
    ::close(socket);
  }
  ::freeaddrinfo(found);
  return address;
}

/// Whether `address` means the loopback interface on every host. A host's own name does so on that host alone.
bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

/// A socket that is bound to the loopback address of `store`, for the store of c10d, which without one listens on all
/// addresses of the host. Throws TransportError where it cannot be bound.
int loopback_socket(const Rendezvous& store) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int unresolved = ::getaddrinfo(store.address.c_str(), std::to_string(store.port).c_str(), &hints, &found);
  require<TransportError>(unresolved == 0, ::gai_strerror(unresolved));
  int bound = -1, error_number = EADDRNOTAVAIL;
  for (const addrinfo* each = found; each && bound < 0; each = each->ai_next) {
    const int socket = ::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol);
    if (socket < 0) continue;
    const int reuses = 1;  // a port on which connections of a former job still end
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &reuses, sizeof(reuses));
    if (::bind(socket, each->ai_addr, each->ai_addrlen) == 0) {
      bound = socket;
      continue;
    }
    error_number = errno;
    ::close(socket);
  }
  ::freeaddrinfo(found);
  require<TransportError>(bound >= 0, "port ", store.port, " of ", store.address, ": ",
                          std::generic_category().message(error_number));
  return bound;
}

/// How long rank 0 waits until all processes know that their builds differ.
constexpr std::chrono::seconds time_to_read{2};

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

/// What a process tells the others: its build, then its place.
std::vector<std::uint8_t> note_of(const ProcessPlace& place) {
  const std::string text =
      say(build_identity(), "\n", place.host, " ", place.process.numbered_by, " ", place.process.number);
  return {text.begin(), text.end()};
}

std::string build_in(const std::vector<std::uint8_t>& note) {
  const std::string text(note.begin(), note.end());
  return text.substr(0, text.find('\n'));
}

ProcessPlace place_in(const std::vector<std::uint8_t>& note) {
  const std::string text(note.begin(), note.end());
  std::istringstream numbers(text.substr(std::min(text.size(), text.find('\n'))));
  ProcessPlace place;
  numbers >> place.host >> place.process.numbered_by >> place.process.number;
  return place;
}

}  // namespace

/// The processes that have come. Shared with a thread that outlives the wait for it where the deadline is missed.
struct Assembly {
  std::mutex mutex;
  std::vector<std::optional<ProcessPlace>> places;  // guarded by mutex
  std::map<std::size_t, std::string> other_builds;  // guarded by mutex: by rank, those that are not this process's
  bool has_store = false;                           // guarded by mutex

  /// Throws ConfigError with the first one that differs. REQUIRES: mutex is held, or nobody writes any more.
  void require_equal_builds(const ProcessRank& own) const {
    if (other_builds.empty()) return;
    const auto& [rank, build] = *other_builds.begin();
    throw ConfigError(say("rank ", own.rank, " runs ", build_identity(), ", and rank ", rank, " runs ", build,
                          ": install the same build on all hosts"));
  }
};

struct GlooRendezvous::Job {
  ProcessRank own;
  std::optional<Rendezvous> meeting;  // where the launcher's processes meet; none: the program has given the store
  c10::intrusive_ptr<c10d::Store> store;
  std::string address;  // of this host, as the store's host sees it

  static std::shared_ptr<Job> of_launcher() {
    const LaunchedAs launched = launched_as();
    return std::make_shared<Job>(Job{{launched.rank, launched.size}, rendezvous(variable), {}, {}});
  }

  void join();
  std::string name_of_next_world(int launched_world) const;
  void meet(c10d::Store& at, Assembly& assembly) const;
  bool opens_store() const { return !meeting->is_open && own.rank == 0; }
  std::string store_text() const {
    if (!meeting) return "the store that the program has given";
    return say("the store at ", meeting->address, ":", meeting->port, " (MASTER_ADDR and MASTER_PORT), ",
               opens_store()      ? "where all processes meet"
               : meeting->is_open ? "which the launcher holds"
                                  : "which rank 0 opens");
  }
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
    job_->address = address_towards(Rendezvous{.address = tcp->getHost(), .port = tcp->getPort()});
}

int GlooRendezvous::size() const { return job_->own.size; }

void GlooRendezvous::Job::join() {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(meeting->port);
  options.isServer = opens_store();
  options.waitWorkers = false;  // meet() waits, and knows who is missing
  options.timeout = gloo_time_limit;
  try {
    if (opens_store() && is_loopback(meeting->address)) options.masterListenFd = loopback_socket(*meeting);
    store = c10::make_intrusive<c10d::PrefixStore>(say("penstock/", meeting->restarts),
                                                   c10::make_intrusive<c10d::TCPStore>(meeting->address, options));
  } catch (const std::exception& error) {
    throw TransportError(say("rank ", own.rank, opens_store() ? " cannot open " : " does not reach ", store_text(),
                             ": ", first_line(error)));
  }
  address = address_towards(*meeting);
}

/// The prefix of this process's next world in the store. A given store may serve several objects of a process, one after
/// the other, so the store itself counts.
std::string GlooRendezvous::Job::name_of_next_world(int launched_world) const {
  return say("world ", meeting ? launched_world : store->add(say("worlds of rank ", own.rank), 1));
}

/// Waits for the notes of all processes, and fills `assembly` with them. Throws ConfigError where builds differ, once all
/// know it.
void GlooRendezvous::Job::meet(c10d::Store& at, Assembly& assembly) const {
  const auto key = [](std::size_t rank) { return say("rank ", rank); };
  const auto own_note = note_of({host_id(), own_process_name()});
  at.set(key(static_cast<std::size_t>(own.rank)), own_note);
  for (bool all_have_come = false; !all_have_come; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    all_have_come = true;
    for (std::size_t rank = 0; rank < assembly.places.size(); ++rank) {
      if (assembly.places[rank]) continue;  // written by this thread alone
      if (!at.check({key(rank)})) {
        all_have_come = false;
        continue;
      }
      const auto note = at.get(key(rank));
      const std::lock_guard lock(assembly.mutex);
      assembly.places[rank] = place_in(note);
      if (build_in(note) != build_in(own_note)) assembly.other_builds[rank] = build_in(note);
    }
  }
  if (assembly.other_builds.empty()) return;
  try {
    at.add("has read all", 1);
    // The store may end with rank 0, which gives the others time to read.
    for (StartDeadline left(time_to_read); own.rank == 0 && !left.is_over();) {
      if (at.add("has read all", 0) == static_cast<std::int64_t>(assembly.places.size())) break;
      std::this_thread::sleep_for(StartDeadline::look_every);
    }
  } catch (const std::exception&) {
    // The store has ended: rank 0 has not waited longer.
  }
  assembly.require_equal_builds(own);
}

GlooWorld GlooRendezvous::open(std::chrono::milliseconds deadline) {
  const auto job = job_ ? job_ : Job::of_launcher();
  const auto assembly = std::make_shared<Assembly>();
  assembly->places.resize(static_cast<std::size_t>(job->own.size));
  std::packaged_task<GlooWorld()> task([job, assembly, world = ++worlds_] {
    if (!job->store) job->join();
    {
      const std::lock_guard lock(assembly->mutex);
      assembly->has_store = true;
    }
    c10::intrusive_ptr<c10d::Store> store;
    try {
      store = c10::make_intrusive<c10d::PrefixStore>(job->name_of_next_world(world), job->store);
      job->meet(*store, *assembly);
    } catch (const Misuse&) {
      throw;
    } catch (const std::exception& error) {
      throw TransportError(say("rank ", job->own.rank, " has lost ", job->store_text(), ": ", first_line(error)));
    }
    GlooMembership membership{WorldRank(job->own.rank), {}, job->address};
    for (const auto& place : assembly->places) membership.places.push_back(*place);
    GlooConnections connections = connect_by_gloo(store, membership);
    return GlooWorld{make_gloo_network(std::move(connections), std::move(membership)), std::move(store)};
  });
  auto opened = task.get_future();
  // In a thread of its own, because c10d and Gloo wait without looking at the deadline.
  std::thread(std::move(task)).detach();
  for (StartDeadline left(deadline); opened.wait_for(StartDeadline::look_every) != std::future_status::ready;) {
    if (!left.is_over()) continue;
    const std::lock_guard lock(assembly->mutex);
    assembly->require_equal_builds(job->own);
    const auto fail = [&](const auto&... why) {
      throw TransportError(say("the world is incomplete after ", static_cast<double>(deadline.count()) * 1e-3,
                               " s (the start deadline, at the rendezvous): ", why...));
    };
    if (!assembly->has_store) fail("rank ", job->own.rank, " does not reach ", job->store_text());
    std::string missing;
    for (std::size_t rank = 0; rank < assembly->places.size(); ++rank) {
      const auto& place = assembly->places[rank];
      const bool is_near = place && place->process.numbered_by == own_process_name().numbered_by;
      if (place && !(is_near && is_stopped(place->process.number))) continue;
      missing += say(missing.empty() ? "rank " : "; rank ", rank);
      missing += place ? say(" (process ", place->process.number, ") is stopped") : std::string(" has not come");
    }
    if (missing.empty()) missing = "all ranks have come, and one of them cannot be connected with this one";
    fail(missing);
  }
  GlooWorld world = opened.get();
  job_ = job;
  return world;
}

}  // namespace penstock
