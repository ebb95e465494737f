// Ranks as processes that Gloo connects: each finds the others in a c10d store, compares builds, and connects with
// them.
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "penstock/base/error.h"
#include "penstock/base/process.h"
#include "penstock/transport/c10d.h"
#include "penstock/transport/devices/device_channels.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/joining/launch_environment.h"
#include "penstock/transport/joining/start.h"
#include "penstock/transport/joining/store_meeting.h"
#include "penstock/transport/processes/buffer_network.h"
#include "penstock/transport/processes/gloo_network.h"

namespace penstock {
using namespace joining;
using namespace processes;
namespace {

constexpr const char* interface_variable = "GLOO_SOCKET_IFNAME";

/// The addresses of a store, and the result of looking them up.
struct Resolved {
  Resolved(const Rendezvous& store, int socket_type) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = socket_type;
    error = ::getaddrinfo(store.address.c_str(), std::to_string(store.port).c_str(), &hints, &found);
    if (error == 0) first.reset(found);
  }
  int error = 0;
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> first{nullptr, &::freeaddrinfo};
};

int socket_for(const addrinfo& address) {
  return ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol);
}

/// Throws ConfigError if GLOO_SOCKET_IFNAME names a network interface that this host does not have.
void require_network_interfaces() {
  const char* named = own_environment(interface_variable);
  if (!named) return;
  std::istringstream names(named);
  for (std::string name; std::getline(names, name, ',');)
    require<ConfigError>(name.empty() || ::if_nametoindex(name.c_str()) != 0, interface_variable, "=", name,
                         ": this host has no such network interface; take one that `ip link` shows, or unset it");
}

/// Why the name in MASTER_ADDR has no address now; empty if it has one.
std::string why_unresolved(const Rendezvous& store) {
  const int error = Resolved(store, SOCK_STREAM).error;
  return error == 0 ? "" : ::gai_strerror(error);
}

/// The address from which this host reaches `store`: the one at which the other hosts reach this one. A host's own name
/// often means 127.0.1.1, which no other host reaches. Empty if there is no way to the store, and if the user has named
/// an interface.
std::string address_towards(const Rendezvous& store) {
  if (own_environment(interface_variable)) return "";
  const Resolved resolved(store, SOCK_DGRAM);  // connecting sends nothing
  std::string address;
  for (const addrinfo* each = resolved.first.get(); each && address.empty(); each = each->ai_next) {
    const int socket = socket_for(*each);
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
  return address;
}

/// A socket that is bound to `store`, if its address is the loopback interface's, for the store of c10d, which without
/// one listens on all addresses of the host; otherwise -1. Throws TransportError if it cannot be bound.
int loopback_socket(const Rendezvous& store) {
  // A host's own name may mean this interface too, but only on that host.
  if (store.address != "localhost" && store.address != "::1" && !store.address.starts_with("127.")) return -1;
  const Resolved resolved(store, SOCK_STREAM);
  int error_number = EADDRNOTAVAIL;
  for (const addrinfo* each = resolved.first.get(); each; each = each->ai_next) {
    const int socket = socket_for(*each);
    if (socket < 0) continue;
    const int reuses = 1;  // a port on which connections of a former job still end
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &reuses, sizeof(reuses));
    if (::bind(socket, each->ai_addr, each->ai_addrlen) == 0) return socket;
    error_number = errno;
    ::close(socket);
  }
  throw TransportError(
      say("port ", store.port, " of ", store.address, ": ", std::generic_category().message(error_number)));
}

/// How long this process may still need to be connected after a process has ended that had joined.
constexpr std::chrono::seconds time_of_reason{1};
constexpr std::chrono::seconds between_lookups{1};

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

/// What the thread that joins and the one that waits for it tell each other.
struct Joining {
  std::atomic<bool> is_over{false};  // the start deadline has passed
  std::mutex mutex;
  std::string unreached;             // guarded by mutex: why the store is not reached; empty: it is reached
  std::vector<ProcessPlace> places;  // guarded by mutex: by rank, once they connect

  void tell(const std::string& why, std::vector<ProcessPlace> connecting = {}) {
    const std::lock_guard lock(mutex);
    unreached = why;
    places = std::move(connecting);
  }
};

std::string unconnected_text(const std::vector<ProcessPlace>& places) {
  std::string text;
  for (std::size_t rank = 0; rank < places.size(); ++rank)
    if (const std::string trouble = trouble_with(places[rank]); !trouble.empty())
      text += say(text.empty() ? "" : "; ", "rank ", rank, trouble);
  return text.empty() ? "all ranks have joined, and this one cannot be connected with one of them" : text;
}

/// A process's part of a world.
struct GlooWorld {
  std::unique_ptr<BufferNetwork> network;
  c10::intrusive_ptr<c10d::Store> store;  // of this world alone
};

/// One process of a job and its store, which serves all worlds of the job. A thread whose start was given up keeps it.
struct GlooJob {
  ProcessRank own;
  std::optional<Rendezvous> place;  // of the store; none: the program has given the store
  c10::intrusive_ptr<c10d::Store> store;
  std::string address;  // of this host, as the store's host sees it

  bool opens_store() const { return place && !place->is_open && own.rank == 0; }
  std::string store_text() const {
    if (!place) return "the store that the program has given";
    return say("the store at ", place->address, ":", place->port, " (MASTER_ADDR and MASTER_PORT), ",
               opens_store()    ? "where all processes meet"
               : place->is_open ? "which the launcher holds"
                                : "which rank 0 opens");
  }
  void open_store(Joining& joining);
  GlooWorld join(std::chrono::milliseconds deadline, Joining& joining);
};

void GlooJob::open_store(Joining& joining) {
  const std::string unreached = say("rank ", own.rank, " does not reach ", store_text());
  const auto tell_unresolved = [&](const std::string& why) {
    joining.tell(say(unreached, ": the name has no address (", why,
                     "); set MASTER_ADDR to the name or address of the host of rank 0"));
  };
  tell_unresolved("no name server answers");
  // The name of a pod has no address before the pod has started.
  for (std::string why; !(why = why_unresolved(*place)).empty() && !joining.is_over;) {
    tell_unresolved(why);
    std::this_thread::sleep_for(between_lookups);
  }
  require<TransportError>(!joining.is_over, "the start has been given up");
  joining.tell(say(unreached, place->is_open
                                  ? ": let this host connect to that port"
                                  : ": start rank 0, or take a port of its host that is free for all ranks"));
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(place->port);
  options.isServer = opens_store();
  options.waitWorkers = false;  // meet_in() waits, and knows who is missing
  options.timeout = transport::c10d_time_limit;
  try {
    if (opens_store())
      if (const int socket = loopback_socket(*place); socket >= 0) options.masterListenFd = socket;
    store = c10::make_intrusive<c10d::PrefixStore>("penstock",
                                                   c10::make_intrusive<c10d::TCPStore>(place->address, options));
  } catch (const std::exception& error) {
    if (opens_store())
      throw TransportError(say("rank ", own.rank, " cannot open ", store_text(), ": ", first_line(error)));
    // If nobody listens, or a connection breaks, c10d tries again, without a limit.
    throw ConfigError(say(unreached, ": ", first_line(error)));
  }
  address = address_towards(*place);
}

/// The part of open() that may wait without a limit.
GlooWorld GlooJob::join(std::chrono::milliseconds deadline, Joining& joining) {
  if (!store) open_store(joining);
  // If nobody waits for this thread any more, it must not be taken for a rank that joins.
  require<TransportError>(!joining.is_over, "the start has been given up");
  joining.tell("");
  Meeting meeting;
  try {
    meeting = meet_in(*store, own_note(own.rank, own.size), deadline, joining.is_over);
  } catch (const Misuse&) {
    throw;
  } catch (const Failure&) {
    throw;
  } catch (const std::exception& error) {
    throw TransportError(say("rank ", own.rank, " has lost ", store_text(), ": ", first_line(error)));
  }
  joining.tell("", meeting.places);
  GlooMembership membership{WorldRank(own.rank), std::move(meeting.places), address};
  auto of_world = c10::make_intrusive<c10d::PrefixStore>(meeting.start, store);
  GlooConnections connections = connect_by_gloo(of_world, membership);
  return {make_gloo_network(std::move(connections), std::move(membership)), std::move(of_world)};
}

/// Runs GlooJob::join() and gives it up at the deadline. Errors are those of open_gloo().
GlooWorld join_in_time(const std::shared_ptr<GlooJob>& job, std::chrono::milliseconds deadline) {
  const auto joining = std::make_shared<Joining>();
  std::packaged_task<GlooWorld()> task([=] {
    const transport::QuietC10d quiet;
    return job->join(deadline, *joining);
  });
  auto joined = task.get_future();
  // In a thread of its own, because c10d and Gloo wait without looking at the deadline.
  std::thread(std::move(task)).detach();
  StartDeadline left(deadline);
  PeerProcesses peers;  // while they connect: Gloo waits for a process that has ended
  std::size_t watched = 0;
  std::string failure;  // when the time is over
  while (joined.wait_for(StartDeadline::look_every) != std::future_status::ready) {
    std::string unreached;
    std::vector<ProcessPlace> places;
    {
      const std::lock_guard lock(joining->mutex);
      unreached = joining->unreached;
      places = joining->places;
    }
    for (; watched < places.size(); ++watched)
      if (static_cast<int>(watched) != job->own.rank && places[watched].host == host_id())
        peers.watch(WorldRank(static_cast<int>(watched)), places[watched].process);
    if (const auto ended = peers.ended(); ended && failure.empty()) {
      failure = say("rank ", ended->rank.value(), " has died: its process ", ended->process,
                    " has ended before all ranks were connected");
      left = StartDeadline(time_of_reason);
    }
    if (!left.is_over()) continue;
    if (!failure.empty()) throw TransportError(failure);
    if (!places.empty()) throw TransportError(incomplete_text(deadline, unconnected_text(places)));
    joining->is_over = true;
    if (!unreached.empty()) throw ConfigError(incomplete_text(deadline, unreached));
    // The thread that meets now says who is missing, unless the store hangs.
    failure = incomplete_text(deadline, job->store_text() + " does not respond any more");
    left = StartDeadline(2 * time_to_read);
  }
  return joined.get();
}

/// Gloo writes to a connection that its peer may have closed, and the system would end the process for that. With the
/// signal ignored the write fails, and the rank can say whom it has lost. A handler of the program's own stays.
void ignore_closed_connections() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

std::unique_ptr<Transport> open_job(const std::shared_ptr<GlooJob>& job, const TransportOptions& options,
                                    const std::optional<DeviceGroups>& groups) {
  require_deadlines(options);
  require_network_interfaces();
  ignore_closed_connections();
  GlooWorld world = join_in_time(job, options.start_deadline);
  std::unique_ptr<devices::DeviceChannels> device_channels;
  if (groups) device_channels = devices::open_device_channels(world.network->rank(), *groups, world.store);
  return open_process(std::move(world.network), options, std::move(device_channels));
}

/// The same for the processes that a launcher has started. Keeps the connection to their store, which rank 0 may hold,
/// until the process ends.
std::unique_ptr<Transport> open_launched(const TransportOptions& options, const std::optional<DeviceGroups>& groups) {
  static auto& joined = *new std::shared_ptr<GlooJob>;
  std::shared_ptr<GlooJob> job = joined;
  if (!job) {
    const LaunchedAs launched = launched_as(AskedTransport::gloo);
    job = std::make_shared<GlooJob>(GlooJob{{launched.rank, launched.size}, rendezvous(own_environment), {}, {}});
  }
  auto endpoint = open_job(job, options, groups);
  joined = std::move(job);
  return endpoint;
}

class StoreProcesses final : public JoinedProcesses {
 public:
  StoreProcesses(const c10::intrusive_ptr<c10d::Store>& store, ProcessRank own, std::optional<DeviceGroups> groups)
      : groups_(std::move(groups)) {
    require<ConfigError>(store.defined(), "there is no store: pass one that all ", own.size, " processes share");
    require<ConfigError>(own.rank >= 0 && own.rank < own.size, "rank ", own.rank, " of ", own.size,
                         " does not exist: ranks count from 0");
    job_ = std::make_shared<GlooJob>(GlooJob{own, {}, c10::make_intrusive<c10d::PrefixStore>("penstock", store), {}});
    // Of other stores the host is unknown: then the address is that of this host's name.
    auto lowest = store;
    if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get()))
      lowest = prefixed->getUnderlyingNonPrefixStore();
    if (const auto* tcp = dynamic_cast<const c10d::TCPStore*>(lowest.get()))
      job_->address = address_towards(Rendezvous{.address = tcp->getHost(), .port = tcp->getPort()});
  }

  std::string transport() const override { return groups_ ? groups_->name : "gloo"; }
  int size() const override { return job_->own.size; }
  std::unique_ptr<Transport> open(const TransportOptions& options) override { return open_job(job_, options, groups_); }

 private:
  std::shared_ptr<GlooJob> job_;
  const std::optional<DeviceGroups> groups_;
};

}  // namespace

bool gloo_available() { return true; }

std::unique_ptr<Transport> open_gloo(const TransportOptions& options) { return open_launched(options, {}); }

std::unique_ptr<Transport> open_nccl(const TransportOptions& options) { return open_launched(options, nccl_groups()); }

std::shared_ptr<JoinedProcesses> store_processes(const c10::intrusive_ptr<c10d::Store>& store, ProcessRank own,
                                                 const std::optional<DeviceGroups>& groups) {
  return std::make_shared<StoreProcesses>(store, own, groups);
}

}  // namespace penstock
