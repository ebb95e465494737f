#include "penstock/world/world.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <thread>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/joining/launch_environment.h"
#include "penstock/world/collectives.h"
#include "penstock/world/failures.h"
#include "penstock/world/rank_watch.h"
#include "penstock/world/worker.h"
#include "penstock/world/world_options.h"

namespace penstock {
namespace {

/// A rank that had no processor meanwhile ends in this time.
constexpr std::chrono::milliseconds shortest_time_to_end{100};
constexpr std::int64_t most_threads = 1024;

std::string plural(int n, const char* what) { return say(n, " ", what, n == 1 ? "" : "s"); }
std::string processes(int n) { return say(n, n == 1 ? " process" : " processes"); }

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
int replicas_of(int count, const WorldOptions& options, const std::string& command = LaunchedAs{}.start) {
  const auto start = [&](std::int64_t wanted, const char* multiple) {
    return options.processes ? say(": join ", multiple, wanted)
                             : say(": start ", multiple, wanted, " (", command, " ", wanted, ")");
  };
  if (options.replicas > 0) {
    const std::int64_t wanted = std::int64_t{options.stages} * options.replicas;
    require<ConfigError>(wanted == count, processes(count), " for ", plural(options.stages, "pipeline rank"), " x ",
                         plural(options.replicas, "replica"), start(wanted, ""));
    return options.replicas;
  }
  require<ConfigError>(count % options.stages == 0 && count > 0, processes(count), count == 1 ? " does" : " do",
                       " not divide into ", plural(options.stages, "pipeline rank"),
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
void require_launched_place(const Transport& endpoint, const LaunchedAs& launched) {
  require<ConfigError>(endpoint.size() == launched.size && endpoint.rank().value() == launched.rank, "this is process ",
                       launched.rank, " of ", launched.size, " started by ", launched.by, ", but ", endpoint.name(),
                       " says process ", endpoint.rank().value(), " of ", endpoint.size(),
                       ": use the launcher of the MPI library that this program is linked with");
}

bool joins_by_gloo(TransportKind kind) { return kind == TransportKind::gloo || kind == TransportKind::nccl; }

std::vector<std::unique_ptr<Transport>> open_endpoints(const WorldOptions& options, TransportKind kind) {
  std::vector<std::unique_ptr<Transport>> endpoints;
  const LaunchedAs launched = options.processes ? LaunchedAs{} : launched_as(asked_transport(options.transport));
  const bool is_launched = launched.kind != LaunchedAs::Kind::alone;
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
    return choose_transport(options.transport, launched_as(asked_transport(options.transport)),
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

std::vector<std::unique_ptr<Transport>> open_endpoints(const WorldOptions& options) {
  check(options);
  return open_endpoints(options, transport_of(options));
}

}  // namespace

struct World::State {
  WorldOptions options;
  int replicas = 1;
  int size = 1;
  std::vector<WorldRank> local_ranks;
  std::vector<std::shared_ptr<Transport>> endpoints;  // by local rank
  std::vector<std::unique_ptr<Worker>> workers;       // by local rank
  std::uint32_t pipelines = 0;
  std::uint64_t finishes = 0;
  const std::shared_ptr<Failures> failures = std::make_shared<Failures>();
  std::shared_ptr<const RankWatch> rank_watch;
  const long process = getpid();
  const int exceptions = std::uncaught_exceptions();  // may be above 0 where a destructor makes the world

  bool is_alone() const { return static_cast<int>(local_ranks.size()) == size; }

  std::size_t local_index(WorldRank rank) const {
    const auto found = std::find(local_ranks.begin(), local_ranks.end(), rank);
    require<InternalError>(found != local_ranks.end(), "rank ", rank.value(), " is not in this process");
    return static_cast<std::size_t>(found - local_ranks.begin());
  }
};

World::World(const WorldOptions& options) : World(open_endpoints(options), options) {}

World::World(std::vector<std::unique_ptr<Transport>> endpoints, const WorldOptions& options)
    : state_(std::make_unique<State>()) {
  check(options);
  require<ConfigError>(!endpoints.empty(), "a world needs at least one endpoint");
  state_->options = options;
  for (auto& endpoint : endpoints) state_->endpoints.push_back(std::move(endpoint));
  state_->size = state_->endpoints.front()->size();
  state_->replicas = replicas_of(state_->size, options);
  for (const auto& endpoint : state_->endpoints) {
    state_->local_ranks.push_back(endpoint->rank());
    state_->workers.push_back(std::make_unique<Worker>(endpoint->rank(), options.threads));
  }
  std::vector<RankWatch::LocalRank> ranks;
  for (std::size_t i = 0; i < state_->workers.size(); ++i)
    ranks.push_back({state_->endpoints[i], state_->workers[i]->busy_since_ns()});
  state_->rank_watch = std::make_shared<RankWatch>(options.deadline, options.stall_limit, std::move(ranks));
}

World::~World() {
  if (getpid() != state_->process) {
    static_cast<void>(state_.release());  // fork() does not copy threads, so there is none to join
    return;
  }
  const bool leaves = std::uncaught_exceptions() > state_->exceptions;
  if (!leaves) state_->failures->log_unreported("the world ends with");
  if (!state_->is_alone() && !failed()) {
    if ((leaves && !state_->failures->is_newest_misuse()) || state_->failures->first_unreported())
      for (const auto& endpoint : state_->endpoints) endpoint->abort(reason_to_leave("world"));
  }
  // A rank may still be in a step that has failed elsewhere, and hang there.
  try {
    if (!failed()) wait_for_workers();
  } catch (const std::exception& error) {
    warn(say("the end of the world: ", error.what()));
  }
  if (!failed()) return;
  for (const auto& worker : state_->workers)
    worker->abandon(std::max(state_->rank_watch->time_left_after_failure(), shortest_time_to_end));
}

// The newest known failure, which most likely is the exception that unwinds the stack.
std::string World::reason_to_leave(const char* what) const {
  const std::string known = state_->failures->newest();
  return !known.empty() ? known
                        : say("rank ", local_ranks().front().value(), " left its ", what,
                              " through an exception, which it reports itself");
}

void World::leave_pipeline(std::uint32_t pipeline) const noexcept {
  if (getpid() != state_->process || state_->is_alone() || failed() || state_->failures->is_newest_misuse()) return;
  const std::string reason = reason_to_leave("pipeline");
  for (const auto& endpoint : state_->endpoints) endpoint->cancel({pipeline, 0, WorkKind::all}, reason);
}

void World::fail(const std::string& reason) const noexcept {
  if (getpid() != state_->process) return;
  const std::string by = state_->is_alone() ? std::string("the program") : say("rank ", local_ranks().front().value());
  for (const auto& endpoint : state_->endpoints) endpoint->abort(say(by, " failed: ", reason));
}

void World::fail_by(const std::exception_ptr& error) const noexcept {
  if (state_->is_alone()) return;
  try {
    std::rethrow_exception(error);
  } catch (const RankFailure&) {  // the rank has reported it to all processes
  } catch (const TransportError&) {
  } catch (...) {
    fail(reason_of(error));
  }
}

void World::finish() {
  require_own_process();
  const bool is_idle = wait_for_workers();
  if (const auto unreported = state_->failures->first_unreported()) {
    state_->failures->mark_reported(unreported);
    std::rethrow_exception(unreported);
  }
  if (const auto reason = failed()) {
    const auto failure = std::make_exception_ptr(RankFailure(*reason));
    if (state_->failures->is_reported(failure) && is_idle) return;
    state_->failures->mark_reported(failure);
    std::rethrow_exception(failure);
  }
  if (state_->is_alone()) return;
  const std::uint64_t round = ++state_->finishes;
  run_on_local_ranks([&](const RankContext& context) {
    context.endpoint->report_progress({"finish"});
    agree(context, control_tag(pipeline_of_world, Topic::finish, round), {},
          [](const std::vector<Message>&) { return Message{}; },
          {.parts = "the end of its work", .decision = "the end of all work"});
  });
}

bool World::wait_for_workers() const {
  std::vector<std::future<void>> all_idle;
  for (WorldRank rank : local_ranks()) {
    auto promise = std::make_shared<std::promise<void>>();
    all_idle.push_back(promise->get_future());
    post(rank, [promise] { promise->set_value(); });
  }
  RankWatch::Wait own_wait(*state_->rank_watch);
  for (auto& idle : all_idle)
    while (idle.wait_for(RankWatch::interval) != std::future_status::ready)
      if (own_wait.check()) return false;
  return true;
}

std::optional<std::string> World::failed() const { return state_->rank_watch->failed(); }

bool World::is_lost(WorldRank rank) const { return context(local_ranks().front()).endpoint->is_lost(rank); }
const std::shared_ptr<Failures>& World::failures() const { return state_->failures; }
const std::shared_ptr<const RankWatch>& World::rank_watch() const { return state_->rank_watch; }

void World::require_own_process() const {
  require<ConfigError>(getpid() == state_->process, "this world belongs to process ", state_->process,
                       ", of which this is a child made by fork(): a child has no ranks; make its own world after "
                       "fork()");
}

int World::stages() const { return state_->options.stages; }
int World::replicas() const { return state_->replicas; }
int World::size() const { return state_->size; }
int World::threads() const { return state_->options.threads; }
int World::rank() const { return local_ranks().front().value(); }
int World::stage_rank() const { return stage_rank_of(local_ranks().front()); }
int World::replica() const { return replica_of(local_ranks().front()); }
std::string World::transport() const { return state_->endpoints.front()->name(); }
bool World::can_cancel_steps() const { return state_->endpoints.front()->can_cancel(); }
bool World::is_main() const { return state_->local_ranks.front() == WorldRank(0); }
bool World::should_log() const { return is_main() || logs_every_rank(); }

std::string World::describe() const {
  return say(plural(size(), "rank"), " = ", plural(stages(), "pipeline rank"), " x ", plural(replicas(), "replica"),
             ", ", transport(), ", ", plural(threads(), "thread"), " per rank");
}

const std::vector<WorldRank>& World::local_ranks() const { return state_->local_ranks; }

RankContext World::context(WorldRank local) const {
  const std::size_t index = state_->local_index(local);
  return {local,
          stages(),
          replicas(),
          index == 0,
          static_cast<int>(state_->local_ranks.size()) == size(),
          state_->endpoints[index]};
}

void World::post(WorldRank local, std::function<void()> job) const {
  require_own_process();
  state_->workers[state_->local_index(local)]->post(std::move(job));
}

void World::run_on_local_ranks(const std::function<void(const RankContext&)>& job) const {
  // Behind a rank that hangs `job` would never run, and it must run before this returns.
  require<RankFailure>(wait_for_workers(), failed().value_or("the world has failed"));
  std::vector<std::future<void>> done;
  for (WorldRank rank : local_ranks()) {
    auto promise = std::make_shared<std::promise<void>>();
    done.push_back(promise->get_future());
    post(rank, [context = context(rank), promise, &job] {
      try {
        job(context);
        promise->set_value();
      } catch (...) {
        context.endpoint->abort(reason_of(std::current_exception()));
        promise->set_exception(std::current_exception());
      }
    });
  }
  // Ranks that wait for a failed one throw TransportError; the error that caused it takes precedence.
  std::exception_ptr cause, consequence;
  for (auto& each : done) {
    try {
      each.get();
    } catch (const TransportError&) {
      if (!consequence) consequence = std::current_exception();
    } catch (...) {
      if (!cause) cause = std::current_exception();
    }
  }
  if (cause) std::rethrow_exception(cause);
  if (consequence) std::rethrow_exception(consequence);
}

std::uint32_t World::next_pipeline() { return state_->pipelines++; }

}  // namespace penstock
