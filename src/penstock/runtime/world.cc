#include "penstock/runtime/world.h"

#include <algorithm>
#include <exception>
#include <future>
#include <thread>

#include "penstock/base/error.h"
#include "penstock/runtime/reason.h"
#include "penstock/runtime/worker.h"
#include "penstock/transport/launch_environment.h"

namespace penstock {
namespace {

constexpr std::chrono::seconds patience_after_failure{2};
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

/// How many replicas `count` processes make; the count must fit.
int replicas_of(int count, const WorldOptions& options) {
  if (options.replicas > 0) {
    const std::int64_t wanted = std::int64_t{options.stages} * options.replicas;
    require<ConfigError>(wanted == count, processes(count), " for ", plural(options.stages, "stage"), " x ",
                         plural(options.replicas, "replica"), ": start ", wanted, " (mpirun -n ", wanted, ")");
    return options.replicas;
  }
  require<ConfigError>(count % options.stages == 0 && count > 0, processes(count), count == 1 ? " does" : " do",
                       " not divide into ", plural(options.stages, "stage"), ": start a multiple of ",
                       options.stages, " (mpirun -n ", options.stages, ")");
  return count / options.stages;
}

std::vector<std::unique_ptr<Transport>> open_endpoints(const WorldOptions& options) {
  check(options);
  const LaunchedAs launched = launched_as();
  const bool several = launched.size > 1;
  require<ConfigError>(launched.kind != LaunchedAs::Kind::torchrun || !several, "this is process ", launched.rank,
                       " of ",
                       launched.size, " started by ", launched.by,
                       ", and nothing joins them: start them with mpirun instead");
  const bool by_mpi = launched.kind == LaunchedAs::Kind::mpi;
  require<ConfigError>(!(by_mpi && several && options.transport == TransportKind::threads), "this is process ",
                       launched.rank, " of ", launched.size, " started by ", launched.by,
                       ", but the transport is threads: ", launched.size,
                       " whole jobs would run side by side; use the mpi transport or start one process");
  const bool mpi = options.transport == TransportKind::mpi ||
                   (options.transport == TransportKind::automatic && by_mpi);
  TransportOptions transport;
  transport.deadline = options.deadline;
  transport.stall_limit = options.stall_limit;
  transport.start_deadline = options.start_deadline;
  std::vector<std::unique_ptr<Transport>> endpoints;
  if (mpi) {
    if (by_mpi) replicas_of(launched.size, options);  // before MPI starts, so that a wrong count ends at once
    endpoints.push_back(open_mpi(transport));
    return endpoints;
  }
  const std::int64_t wanted = std::int64_t{options.stages} * std::max(options.replicas, 1);
  require<ConfigError>(wanted <= most_threads, "stages x replicas = ", wanted, ", but a process holds at most ",
                       most_threads, " ranks as threads: take fewer, or start processes with mpirun");
  const int ranks = static_cast<int>(wanted);
  transport.spin = static_cast<unsigned>(ranks * options.threads) <= std::thread::hardware_concurrency();
  return open_threads(ranks, transport);
}

}  // namespace

struct World::State {
  WorldOptions options;
  int replicas = 1;
  int size = 1;
  std::vector<WorldRank> local_ranks;
  std::vector<std::shared_ptr<Transport>> endpoints;  // beside local_ranks
  std::vector<std::unique_ptr<Worker>> workers;       // beside local_ranks
  std::uint32_t pipelines = 0;

  std::size_t local_index(WorldRank rank) const {
    const auto found = std::find(local_ranks.begin(), local_ranks.end(), rank);
    require<InternalError>(found != local_ranks.end(), "rank ", rank.value(), " is not in this process");
    return static_cast<std::size_t>(found - local_ranks.begin());
  }
};

World::World(const WorldOptions& options) : World(open_endpoints(options), options) {}

World::World(int, char**, const WorldOptions& options) : World(options) {}

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
    state_->workers.push_back(std::make_unique<Worker>(options.threads));
  }
}

World::~World() {
  const bool failed = std::any_of(state_->endpoints.begin(), state_->endpoints.end(),
                                  [](const auto& endpoint) { return endpoint->aborted().has_value(); });
  if (!failed) return;
  for (const auto& worker : state_->workers) worker->abandon(patience_after_failure);
}

int World::stages() const { return state_->options.stages; }
int World::replicas() const { return state_->replicas; }
int World::size() const { return state_->size; }
int World::threads() const { return state_->options.threads; }
int World::rank() const { return local_ranks().front().value(); }
int World::stage_rank() const { return stage_rank_of(local_ranks().front()); }
int World::replica() const { return replica_of(local_ranks().front()); }
std::string World::transport() const { return state_->endpoints.front()->name(); }
bool World::is_main() const { return state_->local_ranks.front() == WorldRank(0); }
bool World::speaks() const { return is_main() || logs_every_rank(); }

std::string World::describe() const {
  return say(plural(size(), "rank"), " = ", plural(stages(), "stage"), " x ", plural(replicas(), "replica"), ", ",
             transport(), ", ", plural(threads(), "thread"), " per rank");
}

const std::vector<WorldRank>& World::local_ranks() const { return state_->local_ranks; }

Member World::member(WorldRank local) const {
  const std::size_t index = state_->local_index(local);
  return {local,      stages(), replicas(), index == 0, static_cast<int>(state_->local_ranks.size()) == size(),
          state_->endpoints[index]};
}

void World::post(WorldRank local, std::function<void()> job) const {
  state_->workers[state_->local_index(local)]->post(std::move(job));
}

void World::run_on_local_ranks(const std::function<void(const Member&)>& job) const {
  std::vector<std::future<void>> done;
  for (WorldRank rank : local_ranks()) {
    auto promise = std::make_shared<std::promise<void>>();
    done.push_back(promise->get_future());
    post(rank, [member = member(rank), promise, &job] {
      try {
        job(member);
        promise->set_value();
      } catch (const std::exception& error) {
        member.endpoint->abort(reason_of(error));
        promise->set_exception(std::current_exception());
      }
    });
  }
  // Ranks that only hear of a failure throw TransportError: what caused it comes first.
  std::exception_ptr cause, echo;
  for (auto& each : done) {
    try {
      each.get();
    } catch (const TransportError&) {
      if (!echo) echo = std::current_exception();
    } catch (const std::exception&) {
      if (!cause) cause = std::current_exception();
    }
  }
  if (cause) std::rethrow_exception(cause);
  if (echo) std::rethrow_exception(echo);
}

std::uint32_t World::next_pipeline() { return state_->pipelines++; }

}  // namespace penstock
