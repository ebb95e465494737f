#include "penstock/state/state_loader.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/checkpoint/safetensors.h"
#include "penstock/state/saved_state.h"
#include "penstock/world/collectives.h"

namespace penstock {

namespace {

constexpr std::size_t shown_differences = 3;

/// Lines: "+name" for a tensor of this rank that fits, "!error" for one that does not.
std::string findings(const RankStages& stages, const StateForm& stored) {
  std::string lines;
  for (const auto& stage : stages)
    for (const Stage::Held& held : stage->state()) {
      const auto found = stored.tensors.find(held.name);
      if (found == stored.tensors.end()) {
        lines += say("!the network has '", held.name, "' of shape ", held.value.sizes(), ", which the ", stored.what,
                     " does not have\n");
        continue;
      }
      const TensorForm& form = found->second;
      const bool fits = held.value.sizes() == form.shape && held.value.dtype().name() == form.dtype;
      lines += fits ? say("+", held.name, "\n")
                    : say("!'", held.name, "' is ", held.value.dtype().name(), " of shape ", held.value.sizes(),
                          " in the network and ", form.dtype, " of shape ", at::IntArrayRef(form.shape), " in the ",
                          stored.what, "\n");
    }
  return lines;
}

/// The text for all ranks' lines, on rank 0. A tied parameter has a line for each of its stages.
std::string text_of(const std::string& lines, const StateForm& stored) {
  std::vector<std::string> differences;
  std::set<std::string> seen;
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);)
    if (seen.insert(line.substr(1)).second && line.starts_with('!')) differences.push_back(line.substr(1));
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

StateForm form_of(const std::map<std::string, torch::Tensor>& state) {
  StateForm form;
  for (const auto& [name, value] : state)
    form.tensors[name] =
        value.defined() ? TensorForm{std::string(value.dtype().name()), value.sizes().vec()} : TensorForm{"nothing"};
  return form;
}

}  // namespace

std::string misfit(const RankContext& context, const Tag& tag, const RankStages& stages, const StateForm& stored) {
  const auto decide = [&](const std::vector<Message>& all) {
    std::string lines;
    for (const Message& message : all) lines += text_in(message);
    return message_of(text_of(lines, stored));
  };
  return text_in(agree(context, tag, message_of(findings(stages, stored)), decide,
                       {.parts = "what fits of a " + stored.what, .decision = "whether a " + stored.what + " fits"}));
}

std::string load_values(const RankContext& context, const Tag& tag, const RankStages& stages,
                        const std::map<std::string, torch::Tensor>& state) {
  const std::string text = misfit(context, control_tag(tag.pipeline, Topic::state, tag.step), stages, form_of(state));
  if (!text.empty()) return text;
  const torch::NoGradGuard no_grad;
  for (const auto& stage : stages)
    for (const Stage::Held& held : stage->state()) torch::Tensor(held.value).copy_(state.at(held.name));
  return text;
}

namespace {

enum class Loading : char { loaded = '+', unfit = '!', damaged = '?', not_readable = '/' };

/// What became of an attempt to load a checkpoint, on one rank or on all.
using Outcome = RankReport<Loading>;

/// The one that decides about the attempt. Called on every rank's thread; returns the same everywhere.
Outcome agreed(const RankContext& context, const Tag& tag, const Outcome& own) {
  const auto decide = [](const std::vector<Message>& all) {
    for (const Outcome::Kind worst : {Outcome::Kind::unfit, Outcome::Kind::damaged, Outcome::Kind::not_readable})
      for (const Message& message : all)
        if (Outcome outcome = Outcome::of(message); outcome.kind == worst) return outcome.message();
    return Outcome().message();
  };
  return Outcome::of(agree(context, tag, own.message(), decide,
                           {.parts = "what it has read of a checkpoint", .decision = "whether a checkpoint is used"}));
}

StateForm form_of(const Checkpoint& checkpoint) {
  StateForm form{"checkpoint"};
  for (const FileRecord& file : checkpoint.manifest().files)
    for (const TensorRecord& tensor : file.tensors)
      if (file.kind == FileKind::model) {
        const auto dtype = c10::scalarTypeToTypeMeta(scalar_type_of(tensor.type, tensor.name)).name();
        form.tensors[tensor.name] = {std::string(dtype), tensor.shape};
      }
  return form;
}

/// That of a checkpoint, or a part of it, that could not be read.
Outcome skipped(const DataError& error) {
  const bool may_be_whole = dynamic_cast<const NotReadable*>(&error) != nullptr;
  return {may_be_whole ? Outcome::Kind::not_readable : Outcome::Kind::damaged, error.what()};
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
  Outcome load(RankRunner& runner, const Tags& tags) const {
    const RankContext& context = runner.context();
    Outcome outcome = agreed(context, tags.opened, opened_);
    if (outcome.kind != Outcome::Kind::loaded) return outcome;
    const std::string difference = misfit(context, tags.fits, runner.stages(), form_);
    if (!difference.empty())
      return {Outcome::Kind::unfit,
              say("'", checkpoint_->directory(), "' is the checkpoint of another network: ", difference)};
    try {
      require_undamaged(runner, *checkpoint_);
    } catch (const DataError& error) {
      outcome = skipped(error);
    }
    // Only now does any rank replace a value: a checkpoint that is skipped changes nothing.
    outcome = agreed(context, tags.checked, outcome);
    if (outcome.kind != Outcome::Kind::loaded) return outcome;
    try {
      restore(runner, *checkpoint_);
    } catch (const DataError& error) {
      outcome = skipped(error);
    } catch (const ConfigError& error) {
      outcome = {Outcome::Kind::unfit, say("'", checkpoint_->directory(), "': ", error.what())};
    }
    outcome = agreed(context, tags.restored, outcome);
    if (outcome.kind == Outcome::Kind::loaded) {
      const States& states = manifest().states;
      runner.begin_at({learning_rate_in(states).has_value(), loss_scaler_in(states)});
    }
    return outcome;
  }

  const Manifest& manifest() const { return checkpoint_->manifest(); }

 private:
  std::optional<Checkpoint> checkpoint_;
  Outcome opened_;
  StateForm form_;
};

/// The checkpoints that may be tried, newest first, each with a line break behind it; "!" and an error instead.
std::string candidates(const std::string& path) {
  if (!may_exist(path)) return "";
  try {
    std::string lines;
    for (const std::string& one : checkpoint_paths(path)) lines += one + "\n";
    return lines;
  } catch (const DataError& error) {
    return say("!", error.what());
  }
}

}  // namespace

LoadedCheckpoint load_checkpoint(LocalRunners& runners, const std::string& path) {
  require<ConfigError>(path.find('\n') == std::string::npos, "a folder of checkpoints has a line break in its name");
  std::string lines;
  const Tag listed = runners.next_gathering();
  runners.run([&](RankRunner& runner) {
    const bool is_first = runner.context().rank == WorldRank(0);
    const Message found = broadcast(runner.context(), listed, is_first ? message_of(candidates(path)) : Message{},
                                    "the list of checkpoints");
    if (runner.context().collects) lines = text_in(found);
  });
  if (lines.starts_with('!')) throw DataError(lines.substr(1));
  LoadedCheckpoint loaded;
  std::optional<std::string> not_readable;  // the newest that is
  for (std::size_t at = 0; at < lines.size();) {
    const std::string directory = lines.substr(at, lines.find('\n', at) - at);
    at += directory.size() + 1;
    const Attempt attempt(directory);
    const Attempt::Tags tags{runners.next_gathering(), runners.next_gathering(), runners.next_gathering(),
                             runners.next_gathering()};
    Outcome outcome;
    runners.run([&](RankRunner& runner) {
      Outcome of_rank = attempt.load(runner, tags);
      if (runner.context().collects) outcome = std::move(of_rank);
    });
    if (outcome.kind == Outcome::Kind::unfit) throw ConfigError(outcome.text);
    if (outcome.kind == Outcome::Kind::loaded) {
      loaded.manifest = attempt.manifest();
      return loaded;
    }
    loaded.damaged.insert(directory);
    const bool may_be_whole = outcome.kind == Outcome::Kind::not_readable;
    if (may_be_whole && !not_readable) not_readable = outcome.text;
    if (runners.world().is_main())
      warn(say("a ", may_be_whole ? "" : "damaged ", "checkpoint is skipped: ", outcome.text));
  }
  if (not_readable) throw NotReadable(*not_readable);
  return loaded;
}

}  // namespace penstock
