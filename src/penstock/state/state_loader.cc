#include "penstock/state/state_loader.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/checkpoint/safetensors.h"
#include "penstock/state/saved_state.h"
#include "penstock/world/collectives.h"

namespace penstock::state {
namespace {

/// A tensor of a stored state without its values.
struct TensorForm {
  std::string dtype;  // as c10 names it: "float"
  std::vector<std::int64_t> shape = {};
};

struct StateForm {
  std::string what = "state";  // in messages: "state", "checkpoint"
  std::map<std::string, TensorForm> tensors = {};
  FrozenParameters frozen = {};  // those whose values are left out need not be among them
};

constexpr std::size_t shown_differences = 3;

/// Two texts of lines: the names of this rank's tensors that fit, and what is wrong with the others.
Message findings(const rank::RankStages& stages, const StateForm& stored) {
  std::string fitting, differences;
  for (const auto& stage : stages)
    for (const rank::Stage::Held& held : stage->state()) {
      const auto found = stored.tensors.find(held.name);
      const auto left_out = stored.frozen.find(held.name);
      if (found == stored.tensors.end() && left_out != stored.frozen.end() && left_out->second) {
        if (checksum_of(held.value) != left_out->second)
          differences += say("the ", stored.what, " leaves out the frozen '", held.name,
                             "', which has other values than when it was saved: start from the same weights\n");
        continue;
      }
      if (found == stored.tensors.end()) {
        differences += say("the network has '", held.name, "' of shape ", held.value.sizes(), ", which the ",
                           stored.what, " does not have\n");
        continue;
      }
      const TensorForm& form = found->second;
      const bool fits = held.value.sizes() == form.shape && held.value.dtype().name() == form.dtype;
      if (fits)
        fitting += say(held.name, "\n");
      else
        differences += say("'", held.name, "' is ", held.value.dtype().name(), " of shape ", held.value.sizes(),
                           " in the network and ", form.dtype, " of shape ", at::IntArrayRef(form.shape), " in the ",
                           stored.what, "\n");
    }
  return transport::message_of(fitting, differences);
}

/// The text for all ranks' findings, on rank 0. A tied parameter has a line for each of its stages.
std::string text_of(const std::vector<Message>& all, const StateForm& stored) {
  std::vector<std::string> differences;
  std::set<std::string> seen;
  for (const Message& message : all) {
    std::istringstream fitting(transport::text_in(message)), errors(transport::text_in(message, 1));
    for (std::string name; std::getline(fitting, name);) seen.insert(name);
    for (std::string error; std::getline(errors, error);)
      if (seen.insert(error).second) differences.push_back(error);
  }
  if (differences.empty())
    for (const auto& [name, form] : stored.tensors)
      if (!seen.contains(name))
        differences.push_back(say("the ", stored.what, " has '", name, "', which the network does not have"));
  std::string text;
  for (std::size_t i = 0; i < std::min(differences.size(), shown_differences); ++i)
    text += (i == 0 ? "" : "; ") + differences[i];
  if (differences.size() > shown_differences) text += say("; and ", differences.size() - shown_differences, " more");
  return text;
}

StateForm form_of(const StateDict& state) {
  StateForm form;
  for (const auto& item : state) {
    const torch::Tensor& value = item.value();
    form.tensors[item.key()] =
        value.defined() ? TensorForm{std::string(value.dtype().name()), value.sizes().vec()} : TensorForm{"nothing"};
  }
  return form;
}

/// Called on every rank's thread with the same `stored`. Returns the first three differences between the ranks'
/// parameters and buffers and those of `stored`, the same text on every rank; empty if all fit.
std::string misfit(const RankContext& context, const Tag& tag, const rank::RankStages& stages,
                   const StateForm& stored) {
  const auto decide = [&](const std::vector<Message>& all) { return transport::message_of(text_of(all, stored)); };
  return transport::text_in(
      agree(context, tag, findings(stages, stored), decide,
            {.parts = "what fits of a " + stored.what, .decision = "whether a " + stored.what + " fits"}));
}

/// The one that decides about the attempt. Called on every rank's thread; returns the same everywhere.
RankReport agreed(const RankContext& context, const Tag& tag, const RankReport& own) {
  const auto decide = [](const std::vector<Message>& all) {
    for (const RankReport::Kind worst :
         {RankReport::Kind::unusable, RankReport::Kind::damaged, RankReport::Kind::not_readable})
      for (const Message& message : all)
        if (RankReport outcome = RankReport::of(message); outcome.kind == worst) return outcome.message();
    return RankReport().message();
  };
  return RankReport::of(
      agree(context, tag, own.message(), decide,
            {.parts = "what it has read from a checkpoint", .decision = "whether a checkpoint is used"}));
}

StateForm form_of(const Checkpoint& checkpoint) {
  StateForm form{"checkpoint"};
  if (checkpoint.frozen()) form.frozen = *checkpoint.frozen();
  for (const FileRecord& file : checkpoint.manifest().files)
    for (const TensorRecord& tensor : file.tensors)
      if (file.kind == FileKind::model) {
        const auto dtype = c10::scalarTypeToTypeMeta(scalar_type_of(tensor.type, tensor.name)).name();
        form.tensors[tensor.name] = {std::string(dtype), tensor.shape};
      }
  return form;
}

/// That of a checkpoint, or a part of it, that could not be read.
RankReport skipped(const DataError& error) {
  const bool may_be_whole = dynamic_cast<const NotReadable*>(&error) != nullptr;
  return {may_be_whole ? RankReport::Kind::not_readable : RankReport::Kind::damaged, error.what()};
}

/// An attempt in this process, whose ranks share the opened checkpoint.
class Attempt {
 public:
  explicit Attempt(const std::string& path) {
    try {
      checkpoint_.emplace(path);
      form_ = form_of(*checkpoint_);
    } catch (const DataError& error) {
      opened_ = skipped(error);
    }
  }

  struct Tags {
    Tag opened, fits, checked, restored;
  };
  /// Called on every rank's thread.
  RankReport load(rank::RankRunner& runner, const Tags& tags) const {
    const RankContext& context = runner.context();
    RankReport outcome = agreed(context, tags.opened, opened_);
    if (outcome.kind != RankReport::Kind::done) return outcome;
    const std::string difference = misfit(context, tags.fits, runner.stages(), form_);
    if (!difference.empty())
      return {RankReport::Kind::unusable,
              say("'", checkpoint_->directory(), "' is the checkpoint of another network: ", difference)};
    try {
      require_undamaged(runner, *checkpoint_);
    } catch (const DataError& error) {
      outcome = skipped(error);
    }
    // Only now does any rank replace a value: a checkpoint that is skipped changes nothing.
    outcome = agreed(context, tags.checked, outcome);
    if (outcome.kind != RankReport::Kind::done) return outcome;
    try {
      restore(runner, *checkpoint_);
    } catch (const DataError& error) {
      outcome = skipped(error);
    } catch (const ConfigError& error) {
      outcome = {RankReport::Kind::unusable, say("'", checkpoint_->directory(), "': ", error.what())};
    }
    outcome = agreed(context, tags.restored, outcome);
    if (outcome.kind == RankReport::Kind::done) {
      const States& states = manifest().states;
      runner.begin_at({learning_rate_in(states).has_value(), loss_scaler_in(states)});
    }
    return outcome;
  }

  const Manifest& manifest() const { return checkpoint_->manifest(); }
  bool has_frozen() const { return checkpoint_->frozen().has_value(); }

 private:
  std::optional<Checkpoint> checkpoint_;
  RankReport opened_;
  StateForm form_;
};

/// The checkpoints that may be tried, newest first, each with a line break after it.
RankReport candidates(const std::string& path) {
  RankReport found;
  try {
    if (may_exist(path))
      for (const std::string& one : checkpoint_paths(path)) found.text += one + "\n";
  } catch (const DataError& error) {
    found = {RankReport::Kind::failed, error.what()};
  }
  return found;
}

}  // namespace

std::string load_values(const RankContext& context, const Tag& tag, const rank::RankStages& stages,
                        const StateDict& state) {
  const std::string text = misfit(context, control_tag(tag.pipeline, Topic::state, tag.step), stages, form_of(state));
  if (!text.empty()) return text;
  const torch::NoGradGuard no_grad;
  for (const auto& stage : stages)
    for (const rank::Stage::Held& held : stage->state()) torch::Tensor(held.value).copy_(state[held.name]);
  return text;
}

LoadedCheckpoint load_checkpoint(rank::LocalRunners& runners, const std::string& path) {
  require<ConfigError>(path.find('\n') == std::string::npos, "a folder of checkpoints has a line break in its name");
  RankReport found;
  const Tag listed = runners.next_gathering();
  runners.run([&](rank::RankRunner& runner) {
    const bool is_first = runner.context().rank == WorldRank(0);
    const Message told = broadcast(runner.context(), listed, is_first ? candidates(path).message() : Message{},
                                   "the list of checkpoints");
    if (runner.context().collects) found = RankReport::of(told);
  });
  require<DataError>(found.kind == RankReport::Kind::done, found.text);
  LoadedCheckpoint loaded;
  std::optional<std::string> not_readable;  // the newest that is
  std::istringstream directories(found.text);
  for (std::string directory; std::getline(directories, directory);) {
    const Attempt attempt(directory);
    const Attempt::Tags tags{runners.next_gathering(), runners.next_gathering(), runners.next_gathering(),
                             runners.next_gathering()};
    RankReport outcome;
    runners.run([&](rank::RankRunner& runner) {
      RankReport of_rank = attempt.load(runner, tags);
      if (runner.context().collects) outcome = std::move(of_rank);
    });
    if (outcome.kind == RankReport::Kind::unusable) throw ConfigError(outcome.text);
    if (outcome.kind == RankReport::Kind::done) {
      loaded.manifest = attempt.manifest();
      loaded.has_frozen = attempt.has_frozen();
      return loaded;
    }
    loaded.damaged.insert(directory);
    const bool may_be_whole = outcome.kind == RankReport::Kind::not_readable;
    if (may_be_whole && !not_readable) not_readable = outcome.text;
    if (runners.world().is_main())
      warn(say("a ", may_be_whole ? "" : "damaged ", "checkpoint is skipped: ", outcome.text));
  }
  if (not_readable) throw NotReadable(*not_readable);
  return loaded;
}

}  // namespace penstock::state
