#include "penstock/world/world.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "penstock/base/cores.h"
#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/base/text.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/joining/launch_environment.h"
#include "penstock/transport/transport.h"
#include "penstock/world/failures.h"
#include "penstock/world/rank_threads.h"
#include "penstock/world/world_options.h"

namespace penstock {
namespace {

constexpr std::int64_t most_threads = 1024;

void check(const WorldOptions& options) {
  require<ConfigError>(options.stages >= 1, "stages = ", options.stages, ", but a pipeline has at least 1");
  require<ConfigError>(options.replicas >= 0, "replicas = ", options.replicas, ", but there is at least 1");
  require<ConfigError>(options.threads >= 1, "threads = ", options.threads, ", but a rank has at least 1");
  require<ConfigError>(options.deadline.count() > 0, "the deadline is ", options.deadline.count(),
                       " ms, but it must be above 0");
  require<ConfigError>(!options.stall_limit || options.stall_limit->count() > 0, "the stall limit is ",
                       options.stall_limit.value_or(std::chrono::milliseconds(0)).count(),
                       " ms, but it must be above 0: leave it out for none");
  require<ConfigError>(options.start_deadline.count() > 0, "the start deadline is ", options.start_deadline.count(),
                       " ms, but it must be above 0");
}

/// The number of replicas that `count` processes form. Throws ConfigError where the count does not fit; `command`
/// starts processes, for the message.
int replicas_of(int count, const WorldOptions& options, const std::string& command = joining::LaunchedAs{}.start) {
  const auto start = [&](std::int64_t wanted, const char* multiple) {
    return options.processes ? say(": join ", multiple, wanted)
                             : say(": start ", multiple, wanted, " (", command, " ", wanted, ")");
  };
  if (options.replicas > 0) {
    const std::int64_t wanted = std::int64_t{options.stages} * options.replicas;
    require<ConfigError>(wanted == count, counted(count, "process"), " for ", counted(options.stages, "pipeline rank"),
                         " x ", counted(options.replicas, "replica"), start(wanted, ""));
    return options.replicas;
  }
  require<ConfigError>(count % options.stages == 0 && count > 0, counted(count, "process"),
                       count == 1 ? " does" : " do", " not divide into ", counted(options.stages, "pipeline rank"),
                       start(options.stages, "a multiple of "));
  return count / options.stages;
}

TransportOptions transport_options(const WorldOptions& options) {
  TransportOptions transport;
  transport.deadline = options.deadline;
  transport.stall_limit = options.stall_limit;
  transport.start_deadline = options.start_deadline;
  return transport;
}

/// This process's endpoint of a world of processes.
std::unique_ptr<Transport> open_process_endpoint(TransportKind kind, const WorldOptions& options) {
  if (options.processes) return options.processes->open(transport_options(options));
  switch (kind) {
    case TransportKind::gloo: return open_gloo(transport_options(options));
    case TransportKind::nccl: return open_nccl(transport_options(options));
    default: return open_mpi(transport_options(options));
  }
}

/// MPI that was started by the launcher of another one takes each process for the only one of a job of its own.
void require_launched_place(const Transport& endpoint, const joining::LaunchedAs& launched) {
  require<ConfigError>(endpoint.size() == launched.size && endpoint.rank().value() == launched.rank, "this is process ",
                       launched.rank, " of ", launched.size, " started by ", launched.by, ", but ", endpoint.name(),
                       " says process ", endpoint.rank().value(), " of ", endpoint.size(),
                       ": use the launcher of the MPI library that this program is linked with");
}

bool joins_by_gloo(TransportKind kind) { return kind == TransportKind::gloo || kind == TransportKind::nccl; }

std::vector<std::unique_ptr<Transport>> open_endpoints(const WorldOptions& options, TransportKind kind) {
  std::vector<std::unique_ptr<Transport>> endpoints;
  const joining::LaunchedAs launched =
      options.processes ? joining::LaunchedAs{} : joining::launched_as(asked_transport(options.transport));
  const bool is_launched = launched.kind != joining::LaunchedAs::Kind::alone;
  // A process that a launcher has started for gloo is one rank, even if it has nothing to join.
  const bool is_one_rank = kind != TransportKind::threads || joins_by_gloo(options.transport);
  // Before the processes are joined, so that a wrong count fails at once.
  if (options.processes || (is_one_rank && launched.has_launcher))
    replicas_of(options.processes ? options.processes->size() : launched.size, options, launched.start);
  if (kind != TransportKind::threads) {
    endpoints.push_back(open_process_endpoint(kind, options));
    if (is_launched) require_launched_place(*endpoints.front(), launched);
    return endpoints;
  }
  const std::int64_t wanted = std::int64_t{options.stages} * std::max(options.replicas, 1);
  require<ConfigError>(wanted <= most_threads, "stages x replicas = ", wanted, ", but a process holds at most ",
                       most_threads, " ranks as threads: take fewer, or start processes with mpirun or torchrun");
  const int ranks = static_cast<int>(wanted);
  TransportOptions transport = transport_options(options);
  transport.spin = static_cast<unsigned>(ranks * options.threads) <= std::thread::hardware_concurrency();
  return open_threads(ranks, transport);
}

TransportKind transport_of(const WorldOptions& options) {
  if (!options.processes && options.transport == TransportKind::nccl) nccl_groups();  // throws where there is none
  if (!options.processes)
    return choose_transport(options.transport, joining::launched_as(asked_transport(options.transport)),
                            {.mpi = mpi_available(), .gloo = gloo_available()});
  const std::string joined_by = options.processes->transport();
  const TransportKind kind = joined_by == "mpi"    ? TransportKind::mpi
                             : joined_by == "gloo" ? TransportKind::gloo
                                                   : TransportKind::nccl;
  require<ConfigError>(options.transport == TransportKind::automatic || options.transport == kind,
                       "the given processes are joined by ", joined_by,
                       ", but another transport is asked for: leave WorldOptions::transport out");
  return kind;
}

/// Warns once per host about ranks that a launcher has bound to too few cores.
void warn_of_bound_cores(const std::vector<std::unique_ptr<Transport>>& endpoints, const WorldOptions& options) {
  const bool is_launched = options.processes || joining::launched_as(asked_transport(options.transport)).has_launcher;
  if (!is_launched || joining::launched_local_rank().value_or(endpoints.front()->rank().value()) != 0) return;
  const auto warning = bound_cores_warning({.threads = static_cast<int>(endpoints.size()) * options.threads,
                                            .usable = usable_cores(),
                                            .of_host = cores_of_host()});
  if (warning) warn(*warning);
}

std::vector<std::unique_ptr<Transport>> open_endpoints(const WorldOptions& options) {
  check(options);
  auto endpoints = open_endpoints(options, transport_of(options));
  warn_of_bound_cores(endpoints, options);
  return endpoints;
}

}  // namespace

World::World(const WorldOptions& options) : World(open_endpoints(options), options) {}

World::World(std::vector<std::unique_ptr<Transport>> endpoints, const WorldOptions& options) {
  check(options);
  require<ConfigError>(!endpoints.empty(), "a world needs at least one endpoint");
  WorldOptions whole = options;
  whole.replicas = replicas_of(endpoints.front()->size(), options);
  ranks_ = std::make_unique<RankThreads>(std::move(endpoints), whole);
}

World::~World() {
  if (!ranks_->is_own_process())
    static_cast<void>(ranks_.release());  // fork() does not copy threads: none can be joined
}

RankThreads& ranks_of(const World& world) { return *world.ranks_; }

void World::finish() { ranks_->finish(); }
void World::fail(const std::string& reason) const noexcept { ranks_->fail(reason); }

void World::fail_by(const std::exception_ptr& error) const noexcept {
  if (ranks_->is_alone()) return;
  try {
    std::rethrow_exception(error);
  } catch (const RankFailure&) {  // the rank has reported it to all processes
  } catch (const TransportError&) {
  } catch (...) {
    fail(reason_of(error));
  }
}

int World::stages() const { return ranks_->options().stages; }
int World::replicas() const { return ranks_->options().replicas; }
int World::size() const { return ranks_->size(); }
int World::threads() const { return ranks_->options().threads; }
int World::rank() const { return ranks_->first().rank.value(); }
int World::stage_rank() const { return stage_rank_of(WorldRank(rank())); }
int World::replica() const { return replica_of(WorldRank(rank())); }
std::string World::transport() const { return ranks_->first().endpoint->name(); }
std::optional<std::string> World::failed() const { return ranks_->failed(); }
bool World::is_main() const { return rank() == 0; }
bool World::should_log() const { return is_main() || joining::logs_every_rank(); }

std::string World::describe() const {
  return say(counted(size(), "rank"), " = ", counted(stages(), "pipeline rank"), " x ", counted(replicas(), "replica"),
             ", ", transport(), ", ", counted(threads(), "thread"), " per rank");
}

}  // namespace penstock
