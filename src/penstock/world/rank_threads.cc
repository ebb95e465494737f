#include "penstock/world/rank_threads.h"

#include <unistd.h>

#include <algorithm>
#include <future>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/world/collectives.h"

namespace penstock {
namespace {

/// A rank that had no processor meanwhile ends in this time.
constexpr std::chrono::milliseconds shortest_time_to_end{100};

}  // namespace

RankThreads::RankThreads(std::vector<std::unique_ptr<Transport>> endpoints, const WorldOptions& options)
    : options_(options), process_(getpid()) {
  std::vector<RankWatch::LocalRank> ranks;
  for (auto& endpoint : endpoints) {
    endpoints_.push_back(std::move(endpoint));
    local_ranks_.push_back(endpoints_.back()->rank());
    workers_.push_back(std::make_unique<Worker>(local_ranks_.back(), options.threads));
    ranks.push_back({endpoints_.back(), workers_.back()->busy_since_ns()});
  }
  watch_ = std::make_shared<RankWatch>(options.deadline, options.stall_limit, std::move(ranks));
}

RankThreads::~RankThreads() {
  const bool leaves = std::uncaught_exceptions() > exceptions_;
  if (!leaves) failures_->log_unreported("the world ends with");
  if (!is_alone() && !failed()) {
    if ((leaves && !failures_->is_newest_misuse()) || failures_->first_unreported())
      for (const auto& endpoint : endpoints_) endpoint->abort(reason_to_leave("world"));
  }
  // A rank may still be in a step that has failed elsewhere, and hang there.
  try {
    if (!failed()) wait_for_workers();
  } catch (const std::exception& error) {
    warn(say("the end of the world: ", error.what()));
  }
  if (!failed()) return;
  for (const auto& worker : workers_)
    worker->abandon(std::max(watch_->time_left_after_failure(), shortest_time_to_end));
}

bool RankThreads::is_own_process() const { return getpid() == process_; }

void RankThreads::require_own_process() const {
  require<ConfigError>(is_own_process(), "this world belongs to process ", process_,
                       ", of which this is a child made by fork(): a child has no ranks; make its own world after "
                       "fork()");
}

std::size_t RankThreads::local_index(WorldRank rank) const {
  const auto found = std::find(local_ranks_.begin(), local_ranks_.end(), rank);
  require<InternalError>(found != local_ranks_.end(), "rank ", rank.value(), " is not in this process");
  return static_cast<std::size_t>(found - local_ranks_.begin());
}

RankContext RankThreads::context(WorldRank local) const {
  const std::size_t index = local_index(local);
  return {local, options_.stages, options_.replicas, index == 0, is_alone(), endpoints_[index]};
}

void RankThreads::post(WorldRank local, std::function<void()> job) const {
  require_own_process();
  workers_[local_index(local)]->post(std::move(job));
}

void RankThreads::run_on_local_ranks(const std::function<void(const RankContext&)>& job) const {
  // Behind a rank that hangs `job` would never run, and it must run before this returns.
  require<RankFailure>(wait_for_workers(), failed().value_or("the world has failed"));
  std::vector<std::future<void>> done;
  for (WorldRank rank : local_ranks_) {
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

void RankThreads::finish() {
  require_own_process();
  const bool is_idle = wait_for_workers();
  if (const auto unreported = failures_->first_unreported()) {
    failures_->mark_reported(unreported);
    std::rethrow_exception(unreported);
  }
  if (const auto reason = failed()) {
    const auto failure = std::make_exception_ptr(RankFailure(*reason));
    if (failures_->is_reported(failure) && is_idle) return;
    failures_->mark_reported(failure);
    std::rethrow_exception(failure);
  }
  if (is_alone()) return;
  const std::uint64_t round = ++finishes_;
  run_on_local_ranks([&](const RankContext& context) {
    context.endpoint->report_progress({"finish"});
    agree(context, control_tag(pipeline_of_world, Topic::finish, round), {},
          [](const std::vector<Message>&) { return Message{}; },
          {.parts = "the end of its work", .decision = "the end of all work"});
  });
}

bool RankThreads::wait_for_workers() const {
  std::vector<std::future<void>> all_idle;
  for (WorldRank rank : local_ranks_) {
    auto promise = std::make_shared<std::promise<void>>();
    all_idle.push_back(promise->get_future());
    post(rank, [promise] { promise->set_value(); });
  }
  RankWatch::Wait own_wait(*watch_);
  for (auto& idle : all_idle)
    while (idle.wait_for(RankWatch::interval) != std::future_status::ready)
      if (own_wait.check()) return false;
  return true;
}

void RankThreads::fail(const std::string& reason) const noexcept {
  if (!is_own_process()) return;
  const std::string by = is_alone() ? std::string("the program") : say("rank ", local_ranks_.front().value());
  for (const auto& endpoint : endpoints_) endpoint->abort(say(by, " failed: ", reason));
}

// The newest known failure, which most likely is the exception that unwinds the stack.
std::string RankThreads::reason_to_leave(const char* what) const {
  const std::string known = failures_->newest();
  return !known.empty() ? known
                        : say("rank ", local_ranks_.front().value(), " left its ", what,
                              " through an exception, which it reports itself");
}

void RankThreads::leave_pipeline(std::uint32_t pipeline) const noexcept {
  if (!is_own_process() || is_alone() || failed() || failures_->is_newest_misuse()) return;
  const std::string reason = reason_to_leave("pipeline");
  for (const auto& endpoint : endpoints_) endpoint->cancel({pipeline, 0, WorkKind::all}, reason);
}

std::string decided_on_rank_0(const World& world, std::uint32_t pipeline, Topic topic,
                              const std::function<std::string(const RankContext&)>& decide) {
  std::string agreed;
  ranks_of(world).run_on_local_ranks([&](const RankContext& context) {
    const bool decides = context.rank == WorldRank(0);
    const Message decision =
        broadcast(context, control_tag(pipeline, topic), decides ? transport::message_of(decide(context)) : Message{},
                  "what rank 0 measures");
    if (context.collects) agreed = transport::text_in(decision);
  });
  return agreed;
}

}  // namespace penstock
