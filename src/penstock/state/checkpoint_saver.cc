#include "penstock/state/checkpoint_saver.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/checkpoint/background_writer.h"
#include "penstock/checkpoint/checkpoint_writer.h"
#include "penstock/state/saved_state.h"
#include "penstock/transport/control_plane.h"
#include "penstock/transport/transport.h"
#include "penstock/world/collectives.h"
#include "penstock/world/failures.h"
#include "penstock/world/rank_threads.h"
#include "penstock/world/rank_watch.h"

namespace penstock {
using state::RankReport;
namespace {

/// Training has precedence: the thread mostly uses the time in which ranks wait.
void lower_own_priority() {
  constexpr int nice = 10;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), nice);
}

/// Calls `work`, which waits for other ranks. A wait that fails because of one of them ends the world here and now, as
/// a RECV does: the next wait for that rank would only take another deadline.
template <class Work>
auto with_others(const RankContext& context, const Work& work) {
  try {
    return work();
  } catch (const StepCancelled&) {  // the world goes on
    throw;
  } catch (const TransportError& error) {
    context.endpoint->abort(error.what());
    throw;
  }
}

/// The copies of one checkpoint, made on the ranks' threads and awaited by the writing thread. Shared with the ranks'
/// threads, because a rank that hangs may outlive the saver.
class Copies : public std::enable_shared_from_this<Copies> {
 public:
  struct OfRank {
    RankContext context;
    std::shared_ptr<RankSnapshot> snapshot;
    std::string directory = {};
    std::map<std::string, StateValues> states = {};
    RankReport report = {RankReport::Kind::failed, "a rank ended before its state was copied"};  // until it is
  };

  /// `snapshots` are used again from checkpoint to checkpoint.
  Copies(const rank::LocalRunners& runners, std::map<WorldRank, std::shared_ptr<RankSnapshot>>& snapshots)
      : watch_(ranks_of(runners.world()).watch()) {
    for (const auto& runner : runners.all()) {
      auto& snapshot = snapshots[runner->context().rank];
      if (!snapshot) snapshot = std::make_shared<RankSnapshot>();
      ranks_.emplace(runner->context().rank, OfRank{runner->context(), snapshot});
    }
  }

  /// The work for every rank's thread. When all copies of it are gone, it has run on all of them or never will.
  rank::LocalRunners::Work work(const Tag& tag, const std::string& directory, bool trained_only) {
    const std::shared_ptr<void> work_is_gone(nullptr,
                                             [self = shared_from_this()](void*) { self->set(self->is_complete_); });
    return [this, tag, directory, trained_only, work_is_gone](rank::RankRunner& runner) {
      OfRank& rank = ranks_.at(runner.context().rank);
      try {
        rank.directory = transport::text_in(with_others(rank.context, [&] {
          return broadcast(rank.context, tag, transport::message_of(directory),
                           "the name of the checkpoint's directory");
        }));
        with_others(rank.context, [&] { take(runner, rank, tag.step, trained_only); });
      } catch (...) {
        rank.report = {RankReport::Kind::failed, reason_of(std::current_exception())};
      }
    };
  }

  /// Returns true when every rank has copied or never will, false after abandon(). Throws the error of
  /// RankWatch::wait().
  bool wait() {
    std::unique_lock lock(mutex_);
    if (const auto failure = watch_->wait(lock, changed_, [this] { return is_complete_ || is_abandoned_; }))
      std::rethrow_exception(failure);
    return !is_abandoned_;
  }
  void abandon() { set(is_abandoned_); }
  bool is_abandoned() {
    const std::lock_guard lock(mutex_);
    return is_abandoned_;
  }
  const std::map<WorldRank, OfRank>& ranks() const { return ranks_; }

 private:
  void set(bool& condition) {
    const std::lock_guard lock(mutex_);
    condition = true;
    changed_.notify_all();
  }

  static void take(rank::RankRunner& runner, OfRank& rank, std::uint64_t round, bool trained_only) {
    rank.report = {RankReport::Kind::unusable, "the step before it failed"};
    if (runner.has_failed()) return;
    const state::OwnedTensors owned(runner, round, trained_only);
    rank.snapshot->take(owned.tensors());
    state::add_loss_scaler(rank.states, runner.updater().loss_scaler());
    rank.report = {};
  }

  const std::shared_ptr<const RankWatch> watch_;
  std::map<WorldRank, OfRank> ranks_;  // an entry is written by its rank's thread, and read after wait()
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_complete_ = false;   // guarded by mutex_
  bool is_abandoned_ = false;  // likewise
};

}  // namespace

class CheckpointSaver::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(state::SaverParts parts, const SaverOptions& options);

  /// Ends what is under way, or leaves it to its thread. To be called once, at the end.
  void end();
  void save(const CheckpointContents& contents);
  void check() { background_.check(); }
  void finish();

 private:
  /// Runs `work`, a call of this object, on the thread that writes.
  template <class Work>
  void start(Work work) {
    background_.start([self = shared_from_this(), work] { work(*self); });
  }
  void await_writing();
  void write(Copies& copies, Manifest manifest, const CheckpointContents& contents);
  void commit(const std::vector<RankReport>& reports, Manifest manifest, const CheckpointContents& contents);

  state::SaverParts parts_;
  const std::chrono::nanoseconds deadline_;
  std::function<void(const CommittedCheckpoint&)> on_saved_;
  WatchedCalls calls_{SystemCalls::real()};
  std::optional<CheckpointWriter> writer_;                        // in the main process
  std::map<WorldRank, std::shared_ptr<RankSnapshot>> snapshots_;  // of local ranks
  std::shared_ptr<Copies> copies_;                                // of the newest checkpoint
  std::string directory_;                                         // in the main process: in which it is written
  std::uint64_t save_ = 0;                                        // the number of the newest checkpoint
  BackgroundWriter background_;                                   // last: its thread uses the members above
};

CheckpointSaver::CheckpointSaver(state::SaverParts parts, const SaverOptions& options)
    : impl_(std::make_shared<Impl>(std::move(parts), options)) {}
CheckpointSaver::~CheckpointSaver() { impl_->end(); }
void CheckpointSaver::save(const CheckpointContents& contents) { impl_->save(contents); }
void CheckpointSaver::check() { impl_->check(); }
void CheckpointSaver::finish() { impl_->finish(); }

CheckpointSaver::Impl::Impl(state::SaverParts parts, const SaverOptions& options)
    : parts_(std::move(parts)),
      deadline_(ranks_of(parts_.runners->world()).watch()->deadline()),
      on_saved_(options.on_saved) {
  RankReport opened;
  const auto first_step = parts_.position().steps;
  if (parts_.runners->world().is_main()) {
    try {
      writer_.emplace(CheckpointFolder{options.folder, options.keep, first_step, parts_.damaged}, calls_);
    } catch (const Misuse& error) {
      opened = {RankReport::Kind::unusable, error.what()};
    } catch (const std::exception& error) {
      opened = {RankReport::Kind::failed, error.what()};
    }
  }
  const Tag tag = parts_.runners->next_gathering();
  parts_.runners->run([&](rank::RankRunner& runner) {
    const Message told = broadcast(runner.context(), tag, opened.message(), "the folder of checkpoints");
    if (runner.context().collects) opened = RankReport::of(told);
  });
  require<ConfigError>(opened.kind != RankReport::Kind::unusable, opened.text);
  require<Failure>(opened.kind != RankReport::Kind::failed, opened.text);
}

// The thread may wait for a rank that hangs, for a process that never reports, or for a disk that does not respond.
void CheckpointSaver::Impl::end() {
  if (background_.has_ended()) return;
  if (copies_) copies_->abandon();
  const RankContext own = ranks_of(parts_.runners->world()).first();
  own.endpoint->cancel({parts_.pipeline, save_, WorkKind::background},
                       say("rank ", own.rank.value(), " ended before the checkpoint was written"));
  try {
    await_writing();
  } catch (const std::exception&) {  // lost
  }
  if (background_.has_ended()) return;
  calls_.stop();
  parts_.runners.reset();
  background_.abandon();
}

/// Waits until nothing is being written. Throws the error of what was, and Failure if the disk does not respond.
void CheckpointSaver::Impl::await_writing() {
  background_.wait([this] {
    const auto blocked = calls_.blocked(deadline_);
    if (!blocked) return;
    const RankContext own = ranks_of(parts_.runners->world()).first();
    // The others wait for this process, and would name only its rank.
    if (!own.is_alone) own.endpoint->abort(say("rank ", own.rank.value(), " cannot save: ", *blocked));
    throw Failure(*blocked);
  });
}

void CheckpointSaver::Impl::save(const CheckpointContents& contents) {
  parts_.require_savable();
  await_writing();
  Manifest manifest;
  manifest.written_by = "penstock " PENSTOCK_VERSION;
  manifest.step = parts_.position().steps;
  manifest.data = contents.data;
  manifest.seed = parts_.seed;
  manifest.bits = parts_.bits;
  manifest.states = contents.states;
  state::add_learning_rate(manifest.states, parts_.position().learning_rate);
  save_ = parts_.runners->next_save();
  if (writer_) {
    writer_->add_damaged(parts_.damaged);
    start([step = manifest.step](Impl& impl) { impl.directory_ = impl.writer_->begin(step); });
    await_writing();
  }
  copies_ = std::make_shared<Copies>(*parts_.runners, snapshots_);
  parts_.runners->post(copies_->work(parts_.runners->next_gathering(), directory_, contents.trained_only));
  start([copies = copies_, manifest, contents](Impl& impl) { impl.write(*copies, manifest, contents); });
}

void CheckpointSaver::Impl::write(Copies& copies, Manifest manifest, const CheckpointContents& contents) {
  lower_own_priority();
  if (!copies.wait()) return;
  Tag tag = control_tag(parts_.pipeline, Topic::gathering, save_);
  tag.traffic = Traffic::background;
  const auto report_of = [&](const Copies::OfRank& rank) -> RankReport {
    if (rank.report.kind != RankReport::Kind::done || rank.context.replica() != Replica(0)) return rank.report;
    try {
      return {RankReport::Kind::done, write_file_records(write_rank_files(
                                          calls_, rank.directory, rank.snapshot->tensors(), contents.metadata))};
    } catch (const SpoiledTensor& spoiled) {
      return {RankReport::Kind::unusable, spoiled.what()};
    } catch (const std::exception& error) {
      return {RankReport::Kind::failed, error.what()};
    }
  };
  // At the same time, because each waits for the disk. The threads inherit the priority of this one.
  std::map<WorldRank, std::future<RankReport>> written;
  for (const auto& [number, rank] : copies.ranks())
    written[number] = std::async(std::launch::async, report_of, std::cref(rank));
  // World rank 0 comes last, because it then waits for the reports of all others.
  for (auto rank = copies.ranks().rbegin(); rank != copies.ranks().rend(); ++rank) {
    const auto& [number, of_rank] = *rank;
    const Message own = written[number].get().message();
    if (copies.is_abandoned()) return;  // the world may have ended since
    const RankContext& context = of_rank.context;
    std::vector<RankReport> reports;
    for (const Message& message :
         with_others(context, [&] { return gather(context, tag, own, "the files of a checkpoint"); }))
      reports.push_back(RankReport::of(message));
    if (number != WorldRank(0)) continue;
    manifest.states.insert(of_rank.states.begin(), of_rank.states.end());
    commit(reports, std::move(manifest), contents);
  }
}

void CheckpointSaver::Impl::commit(const std::vector<RankReport>& reports, Manifest manifest,
                                   const CheckpointContents& contents) {
  for (const RankReport::Kind kind : {RankReport::Kind::failed, RankReport::Kind::unusable})
    for (const RankReport& report : reports) {
      if (report.kind != kind) continue;
      writer_->abandon();
      if (kind == RankReport::Kind::failed) throw Failure(report.text);
      return warn(say("no checkpoint of step ", manifest.step, " is written: ", report.text));
    }
  for (const RankReport& report : reports) {
    if (report.text.empty()) continue;
    const std::vector<FileRecord> files = read_file_records(report.text);
    manifest.files.insert(manifest.files.end(), files.begin(), files.end());
  }
  const CommittedCheckpoint committed = writer_->commit(std::move(manifest), contents.texts);
  if (on_saved_) on_saved_(committed);
  for (const std::string& remark : writer_->remove_old().remarks) warn(remark);
}

void CheckpointSaver::Impl::finish() {
  await_writing();
  const Tag tag = parts_.runners->next_gathering();
  parts_.runners->run([&](rank::RankRunner& runner) {
    broadcast(runner.context(), tag, transport::message_of(std::string()), "rank 0 to have written the checkpoint");
  });
}

}  // namespace penstock
